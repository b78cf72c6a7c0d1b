package catalogue

import (
	_ "embed"
	"strings"
)

// chineseParts has a line with an experiment and its part, and below it, after a tab each, what is done in it and what
// is expected.
//
//go:embed parts.zh.txt
var chineseParts string

// PartWords are what is done in a part of an experiment, what is expected, and what was found.
type PartWords struct {
	Does   string `json:"does"`
	Expect string `json:"expect"`
	Says   string `json:"says,omitempty"`
}

// ChinesePart is what a part does and expects in Chinese, or empty where there are no words for it.
func ChinesePart(experiment, part string) (w PartWords) {
	_, found, _ := strings.Cut("\n"+chineseParts, "\n"+experiment+"/"+part+"\n\t")
	w.Does, found, _ = strings.Cut(found, "\n\t")
	w.Expect, _, _ = strings.Cut(found, "\n")
	return w
}
