package checker

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Fact is one statement of a finding: a code, for which both languages have a template, and its arguments.
type Fact struct {
	Code string `json:"code"`
	// Args are as both languages print them: names, numbers, and times with their units.
	Args []string `json:"args,omitempty"`
}

// Say makes a fact of names, numbers and times.
func Say(code string, args ...any) Fact {
	f := Fact{Code: code}
	for _, arg := range args {
		switch v := arg.(type) {
		case time.Duration:
			arg = span(v)
		case float64:
			arg = number(v)
		}
		f.Args = append(f.Args, fmt.Sprint(arg))
	}
	return f
}

// Found is a finding whose sentence is that of its facts.
func Found(holds bool, numbers map[string]float64, facts ...Fact) Finding {
	f := Finding{Holds: holds, Numbers: numbers}
	if f.Numbers == nil {
		f.Numbers = make(map[string]float64)
	}
	f.add(facts...)
	return f
}

// add appends facts and their English words.
func (f *Finding) add(facts ...Fact) {
	says := make([]string, 0, 1+len(facts))
	if f.Says != "" {
		says = append(says, f.Says)
	}
	for _, fact := range facts {
		says = append(says, fact.english())
	}
	f.Facts, f.Says = append(f.Facts, facts...), strings.Join(says, "; ")
}

func (f Fact) english() string {
	english, _ := wordsOf(f.Code)
	return cmp.Or(english.fill(f.Args), f.Code+": "+strings.Join(f.Args, ", "))
}

// Chinese is the sentence of a finding in Chinese, or empty where a fact of it has no words in this version.
func (f *Finding) Chinese() string {
	says := make([]string, 0, len(f.Facts))
	for _, fact := range f.Facts {
		args := fact.Args
		if fact.Code == "figure" || fact.Code == "not-measured" {
			args = append([]string{FigureInChinese(args[0])}, args[1:]...)
		}
		_, chinese := wordsOf(fact.Code)
		one := chinese.fill(args)
		if one == "" {
			return ""
		}
		says = append(says, one)
	}
	return strings.Join(says, "；")
}

// figures has a line with the name of a figure, in which * is what differs, and after a tab its Chinese name.
//
//go:embed figures.txt
var figures string

// FigureInChinese is the Chinese name of a figure, with the unit in brackets where its value has none, or the name that is given.
func FigureInChinese(name string) string {
	name = spaced(name)
	for line := range strings.Lines(figures) {
		known, chinese, _ := strings.Cut(strings.TrimSpace(line), "\t")
		before, after, open := strings.Cut(known, "*")
		rest, begins := strings.CutPrefix(name, before)
		middle, ends := strings.CutSuffix(rest, after)
		if begins && ends && (open || middle == "") {
			return strings.Replace(chinese, "*", middle, 1)
		}
	}
	return name
}

// template has {1} for the first argument, and {1|lease} for that number of leases.
type template string

// fill puts arguments in their places. It is empty where the template is, or an argument is missing.
func (t template) fill(args []string) string {
	missing := false
	filled := places().ReplaceAllStringFunc(string(t), func(place string) string {
		index, noun, counted := strings.Cut(strings.Trim(place, "{}"), "|")
		i, err := strconv.Atoi(index)
		if err != nil || i < 1 || i > len(args) {
			missing = true
			return ""
		}
		switch {
		case !counted:
			return args[i-1]
		case args[i-1] == "1":
			return "1 " + noun
		default:
			return args[i-1] + " " + noun + "s"
		}
	})
	if missing {
		return ""
	}
	return filled
}

func places() *regexp.Regexp { return regexp.MustCompile(`\{\d[^}]*\}`) }

// words has a line with each code, and after a tab each its English and its Chinese template.
//
//go:embed words.txt
var words string

// wordsOf are the templates of a code, or empty where this version has none.
func wordsOf(code string) (english, chinese template) {
	_, found, _ := strings.Cut("\n"+words, "\n"+code+"\t")
	line, _, _ := strings.Cut(found, "\n")
	en, zh, _ := strings.Cut(line, "\t")
	return template(en), template(zh)
}
