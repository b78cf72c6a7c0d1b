package innodb

import (
	"database/sql"
	"slices"
)

// Claims says what the source has the statement lock in a combination. Of a
// statement that finds nothing the source speaks for the primary key and the
// unique index; what it says of full scans and of plain indexes goes for that
// statement as well, and where it is silent the claim follows from there.
func (c Combination) Claims(s Statement) []Place {
	return slices.DeleteFunc(c.Index.Places(), func(p Place) bool { return !c.claims(s, p) })
}

func (c Combination) claims(s Statement, p Place) bool {
	repeatable := c.Level == sql.LevelRepeatableRead
	switch {
	case repeatable && c.Index == None: // all that the scan has passed
		return true
	case p.Kind != Gap: // what matches, in the index and in the table
		return s == Found && p.id == 10
	case s == Missing: // the gap in which the row would be
		return repeatable && p.Name == "gap_10_15"
	default: // around the entries that match, where more of them may come
		return repeatable && c.Index == Plain && slices.Contains([]string{"gap_5_10", "gap_10_10", "gap_10_15"}, p.Name)
	}
}

// excuse says why a server locks a place that is free by the claim, or is empty.
// What it excuses is told all the same.
func (c Combination) excuse(s Statement, p Place) string {
	if s == Found && c.String() == "unique_rr" && p.Name == "gap_5_10" {
		return "MariaDB 10.11 takes a next-key lock on the entry of a unique index that is not the primary key, and with it the gap below; MySQL 9.7 locks the entry alone"
	}
	return ""
}
