package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	fence   = regexp.MustCompile("(?ms)^ {0,3}```.*?^ {0,3}```[ \t]*$")
	span    = regexp.MustCompile("`[^`]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	named   = regexp.MustCompile(`<a id="([^"]+)">`)
)

// Every link to something in the repository leads there, with its anchor.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	for _, from := range files(t, ".md") {
		text := span.ReplaceAllString(fence.ReplaceAllString(read(t, from), ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(found[1])
			if err != nil {
				t.Errorf("%s: link to %q: %v", from, found[1], err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			follow(t, from, target)
		}
	}
}

// A Chinese page that links to an English one says so in the same line.
func TestChinesePagesMarkWhatIsEnglish(t *testing.T) {
	chinese := func(page string) bool { return strings.Contains(page, "zh-CN") || strings.Contains(page, "lab/zh/") }
	for _, from := range files(t, ".md") {
		for line := range strings.SplitSeq(read(t, from), "\n") {
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				to, _, _ := strings.Cut(path.Join(path.Dir(from), found[1]), "#")
				if chinese(from) && strings.HasSuffix(to, ".md") && to != from && !chinese(to) && !strings.Contains(line, "英文") && !strings.Contains(line, "English") {
					t.Errorf("%s links to %s and does not say that it is English", from, found[1])
				}
			}
		}
	}
}

// follow goes where a link leads that stands in a document.
func follow(t *testing.T, from string, target *url.URL) {
	t.Helper()
	to := from
	if target.Path != "" {
		to = path.Join(path.Dir(from), target.Path)
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil || strings.HasPrefix(to, "../") {
		t.Errorf("%s links to %s, which is not there", from, target)
		return
	}
	if target.Fragment != "" && !anchors(read(t, to))[target.Fragment] {
		t.Errorf("%s links to %s, and %s has no such heading", from, target, to)
	}
}

// anchors are the names by which the headings of a document are reached, as GitHub
// makes them: of two that are the same the second has a number.
func anchors(text string) map[string]bool {
	names := make(map[string]bool)
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := anchor(found[1])
		for n := 1; names[name]; n++ {
			name = anchor(found[1]) + "-" + strconv.Itoa(n)
		}
		names[name] = true
	}
	for _, found := range named.FindAllStringSubmatch(text, -1) {
		names[found[1]] = true
	}
	return names
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}
