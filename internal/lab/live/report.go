package live

import (
	"io"
	"path/filepath"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
)

// Report is a run of the command line as the page shows it.
type Report struct {
	// Facts are what it was made on.
	Facts []Fact `json:"facts"`
	// Interrupted tells that it was ended before its last experiment.
	Interrupted bool       `json:"interrupted"`
	Experiments []*Chapter `json:"experiments"`
}

// Chapter is an experiment of a report, with the recordings of its parts.
type Chapter struct {
	Play

	recordings string // packed
}

// Fact is a name and a value, for people.
type Fact struct {
	Name    string `json:"name"`
	Chinese string `json:"zh,omitempty"` // the name, where there is one
	Value   string `json:"value"`
}

// Evidence is what a report has of a part beside its recording.
type Evidence struct {
	Figures []Fact `json:"figures,omitempty"`
	// Tables have what a replay does not show.
	Tables []Table `json:"tables,omitempty"`
	// Trouble is why there is no recording.
	Trouble string `json:"trouble,omitempty"`
}

// ChapterOf is an experiment whose parts have left their histories in the folder of the run. A history that is missing or
// broken is said on the page and is no error. Show adds what the report has of each part; h is nil where there is none.
func ChapterOf(folder string, e *experiments.Result, show func(part *Evidence, p experiments.PartResult, h *history.History)) (*Chapter, error) {
	c := &Chapter{Play: Play{Result: *e, Chinese: experiments.Chinese(e.Name)}}
	c.Evidence = nil // the parts have it
	var recordings []Recording
	for _, p := range e.Parts {
		part := partOf(e.Name, p)
		var h *history.History
		if p.NotRun == "" && p.History != "" {
			var err error
			if h, err = history.Read(filepath.Join(folder, p.History)); err != nil {
				h, part.Trouble = nil, err.Error()
			} else {
				recordings = append(recordings, OfPart(h, e.Number, e.Name, p))
			}
		}
		show(&part.Evidence, p, h)
		c.Parts = append(c.Parts, part)
	}
	var err error
	c.recordings, err = packed(append([]Recording{}, recordings...))
	return c, err
}

// Save writes the report as one file that a browser opens without a server.
func (r Report) Save(w io.Writer) error {
	data, err := packed(r)
	if err != nil {
		return err
	}
	blocks := []string{block("run", data)}
	for _, c := range r.Experiments {
		blocks = append(blocks, block("of-"+c.Name, c.recordings))
	}
	return save(w, blocks...)
}
