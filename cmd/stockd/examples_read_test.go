package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// example is a fenced block of a document that is executed: sh, bash or go.
type example struct {
	line     int // of its fence
	language string
	text     string
	// shown is the output of the block as the document shows it, in a json, http or text
	// block after it, or in an unmarked one next to it; format is "" where there is none.
	format, shown string
}

var (
	block   = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```[ \t]*$")
	section = regexp.MustCompile(`(?m)^#+ `)
	// command is how a line begins that a reader would paste into a shell.
	command = regexp.MustCompile(`(?m)^(?: {4})?(?:\$ |[A-Z_]+=\S+ |(?:bin/|\./)?(?:stockd|curl|docker|go|make|export|redis-cli|mysql) [a-z'"$-])`)
)

// readExamples lists the examples of a document. A block that looks like one and does
// not say so is an error, and so is an output without its command.
func readExamples(text string) (list []example, err error) {
	end := 0
	for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:at[0]], "\n")
		language, content, between := text[at[2]:at[3]], text[at[4]:at[5]], text[end:at[0]]
		end = at[1]
		if found := command.FindString(between); strings.HasPrefix(found, "    ") {
			err = errors.Join(err, fmt.Errorf("before line %d: %q is a command in an indented block: fence it as sh", line, found))
		}
		if language == "" && len(list) > 0 && strings.TrimSpace(between) == "" {
			language = "text"
		}
		switch language {
		case "sh", "bash", "go":
			list = append(list, example{line: line, language: language, text: content})
		case "json", "http", "text":
			last := len(list) - 1
			if last < 0 || list[last].format != "" || section.MatchString(between) {
				err = errors.Join(err, fmt.Errorf("line %d: no example before this output", line))
				continue
			}
			list[last].format, list[last].shown = language, content
		default:
			if command.MatchString(content) {
				err = errors.Join(err, fmt.Errorf("line %d: the block has a command: mark it as sh", line))
			}
		}
	}
	return list, err
}

// differs are the JSON fields whose values no two runs share, and the shape that each has.
var differs = map[string]*regexp.Regexp{
	"order_id":   regexp.MustCompile(`^[0-9a-zA-Z-]+$`),
	"request_id": regexp.MustCompile(`^\S+$`),
	"instance":   regexp.MustCompile(`^\S+$`),
	"replica":    regexp.MustCompile(`^\S+$`),
	"created_at": regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`),
	"wait_ms":    regexp.MustCompile(`^\d+(\.\d+)?$`),
	"hold_ms":    regexp.MustCompile(`^\d+(\.\d+)?$`),
	"token":      regexp.MustCompile(`^\d+$`),
	"version":    regexp.MustCompile(`^\d+$`),
}

// shapes are what differs in any text: ids, times, durations, versions.
var shapes = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{20,}\b`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "<time>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s|m)\b`), "<duration>"},
	{regexp.MustCompile(`\bv?\d+\.\d+\.\d+\S*`), "<version>"},
}

// compare returns how an output differs from what the document shows, where … stands
// for anything.
func compare(format, shown, got string) error {
	switch format {
	case "json":
		return compareJSON(shown, got)
	case "http":
		return compareHTTP(shown, strings.ReplaceAll(got, "\r\n", "\n"))
	default:
		return compareText(shown, got)
	}
}

func compareText(shown, got string) error {
	for _, s := range shapes {
		shown, got = s.pattern.ReplaceAllString(shown, s.name), s.pattern.ReplaceAllString(got, s.name)
	}
	shown, got = strings.TrimSpace(shown), strings.TrimSpace(got)
	want := strings.ReplaceAll(regexp.QuoteMeta(shown), "…", "(?s:.*)")
	if !regexp.MustCompile("^" + want + "$").MatchString(got) {
		return fmt.Errorf("the document shows\n%s\nand the output is\n%s", shown, got)
	}
	return nil
}

// compareHTTP finds each line of the head that is shown, in any order, and compares the body.
func compareHTTP(shown, got string) error {
	head, body, _ := strings.Cut(shown, "\n\n")
	gotHead, gotBody, _ := strings.Cut(got, "\n\n")
	for line := range strings.Lines(strings.TrimSpace(head)) {
		same := func(other string) bool { return compareText(line, other) == nil }
		if !slices.ContainsFunc(strings.Split(gotHead, "\n"), same) {
			return fmt.Errorf("the document shows %q, which the answer lacks:\n%s", strings.TrimSpace(line), gotHead)
		}
	}
	if strings.TrimSpace(body) == "" {
		return nil
	}
	return compareJSON(body, gotBody)
}

func compareJSON(shown, got string) error {
	want, err := readJSON(shown)
	if err != nil {
		return fmt.Errorf("read what the document shows: %w", err)
	}
	have, err := readJSON(got)
	if err != nil {
		return fmt.Errorf("read the output %q: %w", got, err)
	}
	if path := differenceOf("$", want, have); path != "" {
		return fmt.Errorf("%s; the document shows\n%s\nand the output is\n%s", path, strings.TrimSpace(shown), got)
	}
	return nil
}

// readJSON reads the values that follow each other in a text.
func readJSON(text string) (values []any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		var value any
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return values, nil
		case err != nil:
			return nil, err
		}
		values = append(values, value)
	}
}

// differenceOf names the first difference of two JSON values, or is empty.
func differenceOf(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return path + " is no object"
		}
		return differenceOfObjects(path, want, got)
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Sprintf("%s has not %d elements", path, len(want))
		}
		for i := range want {
			if found := differenceOf(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); found != "" {
				return found
			}
		}
		return ""
	case string:
		if text, ok := got.(string); ok && compareText(want, text) == nil || want == "…" {
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %v", path, got)
	}
	return ""
}

func differenceOfObjects(path string, want, got map[string]any) string {
	for name, value := range got {
		shown, ok := want[name]
		shape := differs[name]
		switch {
		case !ok:
			return path + "." + name + " is not shown"
		case shape != nil && !shape.MatchString(fmt.Sprint(value)):
			return fmt.Sprintf("%s.%s is %v, which is not %s", path, name, value, shape)
		case shape == nil:
			if found := differenceOf(path+"."+name, shown, value); found != "" {
				return found
			}
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			return path + "." + name + " is not in the output"
		}
	}
	return ""
}

func TestExamplesAreRead(t *testing.T) {
	const fence = "```"
	for _, c := range []struct{ name, text, want string }{
		{"an unmarked command", fence + "\ncurl localhost:8080/goods/1\n" + fence + "\n", "mark it as sh"},
		{"an indented command", "    curl localhost:8080/goods/1\n\n" + fence + "sh\ntrue\n" + fence + "\n", "fence it as sh"},
		{"a second output", fence + "sh\ntrue\n" + fence + "\n" + fence + "json\n{}\n" + fence + "\n" + fence + "\nsold 3\n" + fence + "\n", "no example before"},
		{"an output alone", fence + "json\n{}\n" + fence + "\n", "no example before"},
		{"an output of another section", fence + "sh\ntrue\n" + fence + "\n## Next\n" + fence + "json\n{}\n" + fence + "\n", "no example before"},
	} {
		if _, err := readExamples(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	list, err := readExamples("# A\n" + fence + "sh\ntrue\n" + fence + "\nanswers:\n" + fence + "json\n{}\n" + fence + "\nand:\n" + fence + "\n┌─┐\n" + fence + "\n")
	if err != nil || len(list) != 1 || list[0] != (example{line: 2, language: "sh", text: "true\n", format: "json", shown: "{}\n"}) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestShownOutputsAreCompared(t *testing.T) {
	const order = `{"order_id": "2", "remaining": 98}`
	for _, c := range []struct {
		format, shown, got string
		same               bool
	}{
		{"json", order, `{"order_id": "17", "remaining": 98}`, true},
		{"json", order, `{"order_id": "17", "remaining": 97}`, false},
		{"json", order, `{"order_id": "", "remaining": 98}`, false},
		{"json", order, `{"remaining": 98}`, false},
		{"json", `{}`, `{"remaining": 98}`, false},
		{"json", `{"a": [1, "…"]}`, `{"a": [1, "x"]}`, true},
		{"json", `{"a": [1]}`, `{"a": [1, 2]}`, false},
		{"json", `{"a": 1} {"a": 2}`, `{"a": 1}`, false},
		{"json", `{"a": {"b": 1}}`, `{"a": 1}`, false},
		{"text", "sold 3 in 12ms\n…", "sold 3 in 1.5s\nmore\nlines", true},
		{"text", "sold 3", "sold 4", false},
		{"http", "HTTP/1.1 200 OK\nA: …\n\n{}", "HTTP/1.1 200 OK\r\nB: 2\r\nA: 1\r\n\r\n{}", true},
		{"http", "HTTP/1.1 200 OK\nA: …\n\n{}", "HTTP/1.1 200 OK\r\nB: 2\r\n\r\n{}", false},
		{"http", "HTTP/1.1 200 OK\n\n{}", "HTTP/1.1 200 OK\r\n\r\n{\"a\": 1}", false},
	} {
		if err := compare(c.format, c.shown, c.got); (err == nil) != c.same {
			t.Errorf("%s: %q shown and %q printed: %v", c.format, c.shown, c.got, err)
		}
	}
}
