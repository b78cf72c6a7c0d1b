package config

import (
	"regexp"
	"slices"
	"testing"
)

// The bounds of a key are those that its description names.
func TestTheBoundsOfAKeyAreThoseOfItsDescription(t *testing.T) {
	elsewhere := []string{ // by check
		"limit.user_rate", "limit.address_rate", "group.queue", "audit.every", "buyer.secret", "admin.token", "redlock.addresses", "replica",
	}
	between, least, most := regexp.MustCompile(`\b(\d\w*) to (\d\w*)\b`), regexp.MustCompile(`at least (\d\w*)`), regexp.MustCompile(`up to (\d\w*)`)
	for _, f := range fields(new(Config)) {
		low, high := "", ""
		if found := between.FindStringSubmatch(f.doc); found != nil {
			low, high = found[1], found[2]
		} else if found := most.FindStringSubmatch(f.doc); found != nil {
			high = found[1]
		}
		if found := least.FindStringSubmatch(f.doc); found != nil {
			low = found[1]
		}
		if slices.Contains(elsewhere, f.key) {
			continue
		}
		for _, bound := range []struct{ name, said string }{{"min", low}, {"max", high}} {
			if tag := f.tag.Get(bound.name); bound.said != "" && (tag == "" || number(tag) != number(bound.said)) {
				t.Errorf("%s: %s is %q, and its description says %q", f.key, bound.name, tag, bound.said)
			}
		}
		if f.tag.Get("max") != "" && high == "" {
			t.Errorf("%s is at most %s, and its description does not say so", f.key, f.tag.Get("max"))
		}
	}
}
