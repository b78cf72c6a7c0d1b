package live

import (
	_ "embed" // for the listings
	"encoding/json"
	"fmt"
)

// Listing is a part of the code of a strategy, as it stands in the tree.
type Listing struct {
	// Path is the file, and Line the first of its lines that is shown.
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// listing is written by go run ./tools/listings, which a test compares with the tree.
//
//go:embed listings.json
var listing []byte

// Sources are the files of the tree in which strategies are, by their names.
func Sources() (map[string]string, error) {
	list, err := listings()
	paths := make(map[string]string, len(list))
	for name, parts := range list {
		paths[name] = parts[0].Path
	}
	return paths, err
}

// listings are the code of every strategy.
func listings() (map[string][]Listing, error) {
	var list map[string][]Listing
	if err := json.Unmarshal(listing, &list); err != nil {
		return nil, fmt.Errorf("read listings: %w", err)
	}
	return list, nil
}
