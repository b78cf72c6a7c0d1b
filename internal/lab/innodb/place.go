package innodb

import "fmt"

// Kind is what can be locked.
type Kind string

// The kinds of places.
const (
	Row   Kind = "row"   // in the table itself: the clustered index
	Entry Kind = "entry" // in the index of the column, where that is another one
	Gap   Kind = "gap"   // between two neighbours of the index that the statement walks
)

// Place is one of a table that other connections try.
type Place struct {
	Kind Kind
	// Name is unique in the table: "row_10", "gap_10_15".
	Name string
	id   int
	name string
}

type row struct {
	id   int
	name string
}

// rows are those of the table, in the order of id and of name alike.
func (i Index) rows() []row {
	if i == Primary || i == Unique {
		return []row{{5, "b"}, {10, "d"}, {15, "h"}, {20, "j"}}
	}
	return []row{{5, "b"}, {10, "d"}, {10, "f"}, {15, "h"}, {20, "j"}}
}

func (i Index) values() []string {
	rows := i.rows()
	values := make([]string, len(rows))
	for n, r := range rows {
		values[n] = fmt.Sprintf("(%d, '%s')", r.id, r.name)
	}
	return values
}

// Places are all places of the table.
func (i Index) Places() []Place {
	var places []Place
	seen := 0
	for _, r := range i.rows() {
		suffix := ""
		if r.id == seen {
			suffix = "_again"
		}
		seen = r.id
		places = append(places, Place{Row, fmt.Sprintf("row_%d%s", r.id, suffix), r.id, r.name})
		if suffix == "" && (i == Unique || i == Plain) {
			places = append(places, Place{Entry, fmt.Sprintf("entry_%d", r.id), r.id, r.name})
		}
	}
	return append(places, i.gaps()...)
}

// gaps are those between the rows, each with a row that would fall into it. A
// table that is walked by an index is given names that come after all others:
// then nothing but the gap of the index can be in the way of a new row.
func (i Index) gaps() []Place {
	gaps := []Place{{Gap, "gap_below_5", 2, "a"}, {Gap, "gap_5_10", 7, "c"}}
	if i == Plain || i == None {
		gaps = append(gaps, Place{Gap, "gap_10_10", 10, "e"})
	}
	gaps = append(gaps, Place{Gap, "gap_10_15", 12, "g"}, Place{Gap, "gap_15_20", 17, "i"}, Place{Gap, "gap_above_20", 25, "k"})
	if i == None {
		return gaps
	}
	for g := range gaps {
		if gaps[g].Name != "gap_10_10" { // a row of the same id has its place by its name
			gaps[g].name = string(rune('u' + g))
		}
	}
	return gaps
}
