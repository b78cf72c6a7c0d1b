package live

import (
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func TestANameIsOfOneBuyer(t *testing.T) {
	var c class
	must.Get(c.join(" Ann ", "phone", time.Now()))(t)
	for name, want := range map[string]string{
		"":                             "0 characters",
		"   ":                          "0 characters",
		strings.Repeat("小", maxName+1): "25 characters",
		"a\nb":                         "cannot be shown",
		"ann":                          "another buyer is called Ann",
	} {
		if _, err := c.join(name, "phone", time.Now()); !errors.Is(err, errInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q joins with %v, want …%s…", name, err, want)
		}
	}
	must.Get(c.join(strings.Repeat("小", maxName), "phone", time.Now()))(t) // the longest name
}

func TestAClassIsBounded(t *testing.T) {
	var c class
	for i := range maxBuyers {
		must.Get(c.join(fmt.Sprintf("buyer %d", i), fmt.Sprint("phone ", i), time.Now()))(t)
	}
	should.Reject(c.join("one more", "phone", time.Now()))(t, errConflict, "one more joins with")
}

// One address cannot fill a class: neither at once nor in the course of time. A class of 60 whose phones
// share an address joins at once, each with a name that was rejected at first.
func TestAnAddressCannotFillAClass(t *testing.T) {
	var c class
	now := time.Now()
	for i := range 60 {
		_, _ = c.join("", "school", now)
		if _, err := c.join(fmt.Sprintf("pupil %d", i), "school", now); err != nil {
			t.Fatalf("pupil %d: %v", i, err)
		}
	}
	if _, err := c.join("one more", "school", now); !errors.Is(err, errTooSoon) || !strings.Contains(err.Error(), "120 requests to join a minute") {
		t.Errorf("after %d requests in a moment one more is %v, want %v with the limit", joinsAMinute, err, errTooSoon)
	}
	must.Get(c.join("another", "elsewhere", now))(t)
	now = now.Add(time.Minute)
	var err error
	for i := 60; i < maxBuyers && err == nil; i++ {
		now = now.Add(time.Second)
		_, err = c.join(fmt.Sprintf("pupil %d", i), "school", now)
	}
	if !errors.Is(err, errConflict) || len(c.phones) != maxOfAddress+1 || !strings.Contains(err.Error(), "from this address") {
		t.Errorf("with %d buyers the next one of an address is %v, want %v at %d", len(c.phones), err, errConflict, maxOfAddress+1)
	}
}

// What is allowed of a minute is not allowed once more for the time that has passed of it.
func TestAnAddressAsksNoMoreInItsFirstMinuteThanInAnother(t *testing.T) {
	var c class
	start := time.Now()
	for minute := range 3 {
		admitted := 0
		for second := range 60 {
			for range 10 {
				if c.admits("school", start.Add(time.Duration(minute)*time.Minute+time.Duration(second)*time.Second)) {
					admitted++
				}
			}
		}
		should.Be(t, admitted, joinsAMinute, "requests that are admitted in minute", minute+1)
	}
	c.admits("elsewhere", start.Add(time.Hour))
	should.Be(t, len(c.asked), 1, "addresses that are kept, of those that have asked in the last minute")
}

// A name is free when its phone was not used for long. One that is used keeps it, also while nothing is
// sold and while its purchase is not answered.
func TestANameIsFreeWhenItsPhoneWasNotUsedForLong(t *testing.T) {
	var c class
	start := time.Now()
	tokens := make(map[string]string)
	for _, name := range []string{"gone", "looks", "waits", "buys"} {
		tokens[name] = must.Get(c.join(name, "phone", start))(t)
	}
	must.Get(c.press(tokens["waits"], 1, start))(t)
	late := start.Add(unseenFor)
	must.Get(c.see(tokens["looks"], late.Add(-time.Minute)))(t)
	must.Get(c.press(tokens["buys"], 1, late.Add(-time.Minute)))(t)
	c.answered(tokens["buys"], "sold", 1, 5)
	should.Reject(c.join("gone", "another", late.Add(-time.Nanosecond)))(t, errInput, "just before, the name is given away")
	for _, name := range []string{"looks", "waits", "buys"} {
		should.Reject(c.join(name, "another", late))(t, errInput, "the name of a phone that … is given away", name)
	}
	must.Get(c.join("gone", "another", late))(t)
	should.Reject(c.see(tokens["gone"], late))(t, errStranger, "the phone that had it is")
	if c.answered(tokens["waits"], "sold", 1, 5).Bought != 1 {
		t.Error("the answer to the phone that waits is not counted")
	}
}

// A phone that presses after the sale is answered with what it bought, also when its page was loaded again.
func TestAPhoneKeepsWhatItBoughtAfterTheSale(t *testing.T) {
	s := &Session{sale: Sale{Phase: Ended}}
	token := must.Get(s.class.join("Ann", "phone", time.Now()))(t)
	must.Get(s.class.press(token, 1, time.Now()))(t)
	s.class.answered(token, "sold", 1, 5)
	got, err := s.Buy(t.Context(), token)
	if want := (Buyer{Name: "Ann", Bought: 1, Last: "closed", No: 1, Of: 5}); err != nil || got.Buyer != want {
		t.Errorf("it is answered with %v, %v, want %v", got.Buyer, err, want)
	}
	if list, _ := s.class.buyers(1); len(list) != 1 || list[0].Last != "sold" {
		t.Errorf("the page lists %v, want what its last purchase was answered", list)
	}
}

// A phone has one purchase under way, and not one right after the other.
func TestAPhoneBuysNoFasterThanAFinger(t *testing.T) {
	var c class
	token := must.Get(c.join("Ann", "phone", time.Now()))(t)
	now := time.Now()
	press := func(after time.Duration) error {
		_, err := c.press(token, 1, now.Add(after))
		return err
	}
	must.Do(t, press(0))
	should.Fail(t, press(time.Minute), errTooSoon, "before the answer")
	c.answered(token, "sold", 1, 5)
	should.Fail(t, press(pressEvery-1), errTooSoon, "right after it")
	should.Fail(t, press(pressEvery), nil, "later")
	should.Reject(c.press("another token", 1, now))(t, errStranger, "a stranger")
}

// What the page lists is of the sale that it shows, the buyer of most first, and is passed on
// when there is something new.
func TestBuyersAreListedByWhatTheyBought(t *testing.T) {
	var c class
	tokens := map[string]string{}
	for _, name := range []string{"Ann", "Bob", "Cy"} {
		tokens[name], _ = c.join(name, "phone", time.Now())
	}
	buy := func(name string, item int64, last string, after time.Duration) {
		t.Helper()
		must.Get(c.press(tokens[name], item, time.Now().Add(after)))(t)
		no := int64(0)
		if last == "sold" {
			no = 7
		}
		c.answered(tokens[name], last, no, 5)
	}
	buy("Bob", 1, "sold", 0)
	buy("Cy", 1, "rejected", 0)
	if got, ok := c.buyers(1); !ok || fmt.Sprint(got) != "[{Bob 1 sold 7 5} {Ann 0  0 0} {Cy 0 rejected 0 0}]" {
		t.Errorf("the buyers are %v, %v", got, ok)
	}
	if got, ok := c.buyers(1); ok {
		t.Errorf("they are passed on again: %v", got)
	}
	c.touch()
	if got, ok := c.buyers(2); !ok || fmt.Sprint(got) != "[{Ann 0  0 0} {Bob 0  0 0} {Cy 0  0 0}]" {
		t.Errorf("of the next sale they are %v, %v", got, ok)
	}
	buy("Bob", 2, "sold", time.Second)
	if got, _ := c.buyers(2); fmt.Sprint(got[0]) != "{Bob 1 sold 7 5}" {
		t.Errorf("then %v", got)
	}
}

// The token of a phone buys, and steers nothing; the token of the desk is no phone's.
func TestThePhoneOfABuyerBuysAndSteersNothing(t *testing.T) {
	server := desk(t)
	post := func(path, body string, headers ...string) (int, string) {
		t.Helper()
		return postTo(t, server, path, body, headers...)
	}
	status, said := post("/buy/join", `{"name": "Ann"}`)
	_, after, ok := strings.Cut(said, `"token":"`)
	phone, _, _ := strings.Cut(after, `"`)
	if status != http.StatusOK || !ok || phone == "" {
		t.Fatalf("joining is answered with %d %s", status, said)
	}
	if status, said := post("/buy", "", "Authorization", "Bearer "+phone); status != http.StatusOK || !strings.Contains(said, `"last":"closed"`) {
		t.Errorf("while nothing is sold a purchase is answered with %d %s", status, said)
	}
	for _, path := range []string{"/sale/start", "/sale/stop", "/machines/replica-1/kill"} {
		status, _ := post(path, "{}", "Authorization", "Bearer "+phone)
		should.Be(t, status, http.StatusForbidden, "POST … of a phone is answered with", path)
	}
	if status, said := post("/buy/join", `{"name": "Bob", "token": "x"}`); status != http.StatusUnprocessableEntity || !strings.Contains(said, "token") {
		t.Errorf("an unknown field is answered with %d %s", status, said)
	}
	status, _ = post("/buy/join", `{"name": "Eve"}`, "Origin", "http://example.com")
	should.Be(t, status, http.StatusForbidden, "another page's request to join is answered with")
}

// A phone may press when the time of the sale is over and its last clients are still answered.
func TestAPressIsSentThoughTheTimeOfTheSaleIsOver(t *testing.T) {
	r := run{until: time.Now().Add(-time.Second), meter: newMeter(), settings: Settings{Clients: 50, Rate: 100}}
	plan := r.press(Mode{Strategy: "naive"}, "Ann")
	if plan.Clients != 1 || plan.Requests != 1 || plan.Rate != 0 || plan.Duration != 0 {
		t.Errorf("a press is %d requests of %d clients at %v/s within %s, want one of one, however late it is sent",
			plan.Requests, plan.Clients, plan.Rate, plan.Duration)
	}
}

// A class has the code of its address, and a page without one has none.
func TestTheCodeIsOfTheAddressOfTheClass(t *testing.T) {
	server := desk(t)
	should.Be(t, ask(t, server, http.MethodGet, "/buy/code.png").StatusCode, http.StatusNotFound, "without a class the code is answered with")
	served(server).session.at = "http://127.0.0.1:8090/buy"
	answer := ask(t, server, http.MethodGet, "/buy/code.png")
	picture, err := png.DecodeConfig(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || picture.Width < 220 || picture.Width != picture.Height {
		t.Errorf("status %d, %d × %d pixels, want a code as large as it is shown (%v)", answer.StatusCode, picture.Width, picture.Height, err)
	}
}

// A class of readers is written to less often, and never much later than it happens.
func TestManyReadersAreWrittenToLessOften(t *testing.T) {
	for readers, want := range map[int64]time.Duration{
		0: passEvery, 1: passEvery, few: passEvery, 2 * few: 2 * passEvery, 200: passLate, maxReaders: passLate,
	} {
		should.Be(t, passAfter(readers), want, "… readers are written to every", readers)
	}
}
