package live

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestANameIsOfOneBuyer(t *testing.T) {
	var c class
	if _, err := c.join(" Ann "); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"":                              "0 characters",
		"   ":                           "0 characters",
		strings.Repeat("小", mostName+1): "25 characters",
		"a\nb":                          "cannot be shown",
		"ann":                           "another buyer is called Ann",
	} {
		if _, err := c.join(name); !errors.Is(err, errInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q joins with %v, want …%s…", name, err, want)
		}
	}
	if _, err := c.join(strings.Repeat("小", mostName)); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

func TestAClassIsBounded(t *testing.T) {
	var c class
	for i := range mostBuyers {
		if _, err := c.join(fmt.Sprintf("buyer %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.join("one more"); !errors.Is(err, errConflict) {
		t.Errorf("one more joins with %v, want %v", err, errConflict)
	}
}

// A phone has one purchase under way, and not one right after the other.
func TestAPhoneBuysNoFasterThanAFinger(t *testing.T) {
	var c class
	token, err := c.join("Ann")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	press := func(after time.Duration) error {
		_, err := c.press(token, 1, now.Add(after))
		return err
	}
	if err := press(0); err != nil {
		t.Fatal(err)
	}
	if err := press(time.Minute); !errors.Is(err, errTooSoon) {
		t.Errorf("before the answer: %v, want %v", err, errTooSoon)
	}
	c.answered(token, "sold", true)
	if err := press(pressEvery - 1); !errors.Is(err, errTooSoon) {
		t.Errorf("right after it: %v, want %v", err, errTooSoon)
	}
	if err := press(pressEvery); err != nil {
		t.Errorf("later: %v", err)
	}
	if _, err := c.press("another token", 1, now); !errors.Is(err, errStranger) {
		t.Errorf("a stranger: %v, want %v", err, errStranger)
	}
}

// A class of readers is written to less often, and never much later than it happens.
func TestManyReadersAreWrittenToLessOften(t *testing.T) {
	for readers, want := range map[int64]time.Duration{
		0: passEvery, 1: passEvery, few: passEvery, 2 * few: 2 * passEvery, 200: passLate, mostReaders: passLate,
	} {
		if got := passAfter(readers); got != want {
			t.Errorf("%d readers are written to every %s, want %s", readers, got, want)
		}
	}
}

// What the page lists is of the sale that it shows, the buyer of most first, and is passed on
// when there is something new.
func TestBuyersAreListedByWhatTheyBought(t *testing.T) {
	var c class
	tokens := map[string]string{}
	for _, name := range []string{"Ann", "Bob", "Cy"} {
		tokens[name], _ = c.join(name)
	}
	buy := func(name string, item int64, last string, after time.Duration) {
		t.Helper()
		if _, err := c.press(tokens[name], item, time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
		c.answered(tokens[name], last, last == "sold")
	}
	buy("Bob", 1, "sold", 0)
	buy("Cy", 1, "rejected", 0)
	if got, ok := c.buyers(1); !ok || fmt.Sprint(got) != "[{Bob 1 sold} {Ann 0 } {Cy 0 rejected}]" {
		t.Errorf("the buyers are %v, %v", got, ok)
	}
	if got, ok := c.buyers(1); ok {
		t.Errorf("they are passed on again: %v", got)
	}
	c.touch()
	if got, ok := c.buyers(2); !ok || fmt.Sprint(got) != "[{Ann 0 } {Bob 0 } {Cy 0 }]" {
		t.Errorf("of the next sale they are %v, %v", got, ok)
	}
	buy("Bob", 2, "sold", time.Second)
	if got, _ := c.buyers(2); fmt.Sprint(got[0]) != "{Bob 1 sold}" {
		t.Errorf("then %v", got)
	}
}

// The token of a phone buys, and steers nothing; the token of the desk is no phone's.
//
//contract:live.Handler A phone that has joined
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
		if status, _ := post(path, "{}", "Authorization", "Bearer "+phone); status != http.StatusForbidden {
			t.Errorf("POST %s of a phone is answered with %d", path, status)
		}
	}
	if status, said := post("/buy/join", `{"name": "Bob", "token": "x"}`); status != http.StatusUnprocessableEntity || !strings.Contains(said, "token") {
		t.Errorf("an unknown field is answered with %d %s", status, said)
	}
	if status, _ := post("/buy/join", `{"name": "Eve"}`, "Origin", "http://example.com"); status != http.StatusForbidden {
		t.Errorf("another page's request to join is answered with %d", status)
	}
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
