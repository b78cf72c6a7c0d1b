package live

import "io"

// Report is a run of the command line as the page shows it.
type Report struct {
	// Facts are what it was made on.
	Facts []Fact `json:"facts"`
	// Interrupted tells that it was ended before its last experiment.
	Interrupted bool    `json:"interrupted"`
	Experiments []*Play `json:"experiments"`
}

// Fact is a name and a value, for people.
type Fact struct {
	Name    string `json:"name"`
	Chinese string `json:"zh,omitempty"` // the name, where there is one
	Value   string `json:"value"`
}

// Save writes the report as one file that a browser opens without a server.
func (r Report) Save(w io.Writer) error {
	data, err := packed(r)
	if err != nil {
		return err
	}
	blocks := []string{block("run", data)}
	for _, e := range r.Experiments {
		recordings, err := packed(e.Recordings)
		if err != nil {
			return err
		}
		blocks = append(blocks, block("of-"+e.Name, recordings))
	}
	return save(w, blocks...)
}
