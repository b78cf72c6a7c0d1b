package handler_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/handler"
)

// mostProblem is the most bytes of a problem, whatever was sent.
const mostProblem = 6 << 10

// fieldsOf is a JSON object of so many fields that no route has.
func fieldsOf(count int) string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestAProblemNamesAtMostTenFields(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.MaxBody = 16 << 10 })
	for count, want := range map[int]struct {
		named int
		more  any
	}{1: {2, nil}, 9: {10, nil}, 10: {10, 1.0}, 1500: {10, 1491.0}} { // and goods_id is missing
		got := send(t, request(t, http.MethodPost, a.public.URL+"/deduct", jsonType, fieldsOf(count)))
		named, _ := got.body["errors"].([]any)
		if got.problem() != "invalid-request" || len(named) != want.named || got.body["more_errors"] != want.more || len(got.text) > mostProblem {
			t.Errorf("%d unknown fields are answered with %d bytes: %.300s", count, len(got.text), got.text)
		}
		if detail, _ := got.body["detail"].(string); !strings.HasSuffix(detail, fmt.Sprintf("(and %d more)", count)) {
			t.Errorf("%d unknown fields: the detail is %q", count, detail)
		}
	}
}

// What a request says is quoted shortened, wherever it stands.
func TestAProblemIsShortWhateverIsSent(t *testing.T) {
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.MaxBody, o.Pprof = 64<<10, true })
	a = a.with(t, func(*handler.Options) {})
	for _, unit := range []string{"x", "\x01", "\"", "<", "☂", "\U000e0001"} {
		long := strings.Repeat(unit, 2000/len(unit))
		text := url.QueryEscape(long)
		var many strings.Builder
		for i := range 9 {
			fmt.Fprintf(&many, "&%d%s=0", i, text[:1000])
		}
		for name, r := range map[string]*http.Request{
			"the names of fields":    request(t, http.MethodPost, a.public.URL+"/deduct?"+many.String(), "", ""),
			"a name in JSON":         request(t, http.MethodPost, a.public.URL+"/deduct", jsonType, fmt.Sprintf(`{%q: {}}`, "é"+strings.ToValidUTF8(long, ""))),
			"every field":            request(t, http.MethodPost, a.public.URL+"/deduct", "application/x-www-form-urlencoded", everyField(text)),
			"a strategy":             request(t, http.MethodPost, a.public.URL+"/deduct?goods_id=1&strategy="+text, "", ""),
			"a path":                 request(t, http.MethodGet, a.public.URL+"/"+url.PathEscape(long), "", ""),
			"the id of an item":      request(t, http.MethodGet, a.public.URL+"/goods/"+url.PathEscape(long), "", ""),
			"the number of an order": request(t, http.MethodGet, a.public.URL+"/orders/"+url.PathEscape(long), "", ""),
			"a reservation":          request(t, http.MethodGet, a.public.URL+"/reservations/"+url.PathEscape(long), "", ""),
			"one that is released":   request(t, http.MethodPost, a.public.URL+"/reservations/"+url.PathEscape(long)+"/release", "", ""),
			"one that is paid":       a.ownerRequest(t, http.MethodPost, "/reservations/"+url.PathEscape(long)+"/confirm?payment_reference=p"),
			"a method":               request(t, strings.Repeat("M", 2000), a.public.URL+"/deduct", "", ""),
			"a switch":               a.ownerRequest(t, http.MethodPut, "/strategies/"+url.PathEscape(long)+"?enabled=true"),
			"a choice":               a.ownerRequest(t, http.MethodPatch, "/goods/1?strategy="+text),
			"a profile":              a.ownerRequest(t, http.MethodGet, "/debug/pprof/"+url.PathEscape(long)),
		} {
			got := send(t, r)
			if got.status < 400 || got.status >= 500 || len(got.text) > mostProblem {
				t.Errorf("%s of %q is answered with %d and %d bytes: %.200s", name, unit, got.status, len(got.text), got.text)
			}
		}
	}
}

// everyField is a form with the same text in every field of a purchase.
func everyField(text string) string {
	var form strings.Builder
	for _, name := range []string{"strategy", "group", "fence", "goods_id", "quantity", "user_id", "durable", "wait_ms", text} {
		form.WriteString(name + "=" + text + "&")
	}
	return form.String()
}

func (a api) ownerRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r := request(t, method, a.admin.URL+path, "", "")
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
