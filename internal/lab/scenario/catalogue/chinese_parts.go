package catalogue

import (
	_ "embed"
	"regexp"
	"strings"
)

// chineseParts and chineseFindings have what is said of parts: a line in English and below it, after a tab, the
// Chinese one. {} is a name or a number, {t} a time, both in the place of $1 and so on; {s} is a plural.
//
//go:embed parts.zh.txt
var chineseParts string

//go:embed found.zh.txt
var chineseFindings string

// PartWords are what is done in a part of an experiment, what is expected, and what was found.
type PartWords struct {
	Does   string `json:"does"`
	Expect string `json:"expect"`
	Says   string `json:"says,omitempty"`
}

// Translator has the Chinese words for parts.
type Translator []phrase

type phrase struct {
	english *regexp.Regexp
	chinese string
}

// NewTranslator reads the words, which takes some milliseconds.
func NewTranslator() Translator {
	lines := strings.Split(strings.TrimSuffix(chineseParts+chineseFindings, "\n"), "\n")
	list := make(Translator, 0, len(lines)/2)
	holes := strings.NewReplacer(`\{\}`, `(\S+)`, `\{t\}`, `([\d.,]+(?: ms| s)|\S+)`, `\{s\}`, `s?`)
	places := regexp.MustCompile(`\$(\d)`) // a Chinese sign after it would be part of its name
	for i := 0; i+1 < len(lines); i += 2 {
		chinese := places.ReplaceAllString(strings.TrimPrefix(lines[i+1], "\t"), "$${$1}")
		list = append(list, phrase{regexp.MustCompile("^" + holes.Replace(regexp.QuoteMeta(lines[i])) + "$"), chinese})
	}
	return list
}

// Part translates the words of a part. What has no Chinese words is empty, as are those of a finding that
// one piece of has none.
func (t Translator) Part(does, expect, says string) PartWords {
	return PartWords{t.chinese(does), t.chinese(expect), t.finding(says)}
}

func (t Translator) chinese(english string) string {
	for _, p := range t {
		if p.english.MatchString(english) {
			return p.english.ReplaceAllString(english, p.chinese)
		}
	}
	return ""
}

// finding is made of sentences, and of figures with their names, which stay as they are.
func (t Translator) finding(english string) string {
	figure := regexp.MustCompile(`^([a-z0-9_ ]+) is (-?[\d.,]+)$`)
	pieces := strings.Split(english, "; ")
	for i, piece := range pieces {
		if pieces[i] = t.chinese(piece); pieces[i] != "" {
			continue
		}
		figures := strings.Split(piece, ", ")
		for k, one := range figures {
			if !figure.MatchString(one) {
				return ""
			}
			figures[k] = figure.ReplaceAllString(one, "$1 = $2")
		}
		pieces[i] = strings.Join(figures, "，")
	}
	return strings.Join(pieces, "；")
}
