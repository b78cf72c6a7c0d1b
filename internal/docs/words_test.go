package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words read as translated, or are old names of something; each has what to say instead.
func words() map[string]string {
	return map[string]string{
		`(?i)\b(a|the|each|every|one|many|all) goods\b`: "an item",
		`(?i)\bwhoever\b`:                                   "the waiting requests, a client",
		`\b([Nn]obody|[Ee]verybody|[Ss]omebody)\b`:          "no request, all clients, a client",
		`\b([Hh]e|[Hh]is|[Hh]im)\b`:                         "it, its, they",
		`(?i)\b(is|are|was|were|be) told\b`:                 "gets, is notified",
		`(?i)\bhears\b`:                                     "gets",
		`(?i)\bpromised\b`:                                  "accepted, pending",
		`(?i)\bput aside\b`:                                 "dead-lettered",
		`(?i)\bturned away\b`:                               "rejected",
		`(?i)\bmistake of ours\b`:                           "internal error",
		`(?i)\bof late\b`:                                   "recently",
		`(?i)\bthe owner's (listener|token|API|endpoint)\b`: "the admin API, an admin token",
	}
}

// spared are the words of a file that stand there for a reason.
func spared() map[string]string {
	return map[string]string{
		"docs/adding-a-strategy.md nobody":           "a value in a script that is to be broken",
		"api/openapi.yaml promised":                  "a field that clients read",
		"internal/service/hot/reconcile.go promised": "that field",
		"internal/service/hot/lua promised":          "a field of a hash in Redis",
	}
}

// Documents, comments, help texts, problem titles, logs and configurations keep to the style
// guide's words. Migrations are left as they were applied, and docs/contracts.md is made of
// comments.
func TestWordsAreThoseOfTheStyleGuide(t *testing.T) {
	wrong := regexp.MustCompile("(?:" + strings.Join(slices.Collect(maps.Keys(words())), ")|(?:") + ")")
	seen := 0
	for _, suffix := range []string{".md", ".go", ".yaml", ".yml", ".template", ".lua"} {
		for _, path := range files(t, suffix) {
			if strings.HasSuffix(path, "_test.go") || path == "docs/contracts.md" {
				continue
			}
			seen++
			for n, line := range strings.Split(read(t, path), "\n") {
				for _, word := range wrong.FindAllString(line, -1) {
					if !isSpared(path, word) {
						t.Errorf("%s:%d: %q; say: %s", path, n+1, word, instead(word))
					}
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d files were read", seen)
	}
}

// instead is what to say instead of a word.
func instead(word string) string {
	for pattern, say := range words() {
		if regexp.MustCompile(pattern).MatchString(word) {
			return say
		}
	}
	return ""
}

func isSpared(path, word string) bool {
	if strings.HasPrefix(path, "internal/service/hot/lua/") {
		path = "internal/service/hot/lua"
	}
	_, ok := spared()[path+" "+word]
	return ok
}
