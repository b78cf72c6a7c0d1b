package step

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/scenario"
)

// ProbeLocks runs a statement in all combinations of index and isolation, and
// writes down which places it locks.
func ProbeLocks(statement innodb.Statement) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		matrix, err := innodb.Probe(ctx, db, statement)
		if err != nil {
			return err
		}
		return figures(s, innodb.Figures(matrix))
	})
}

// PassALockedRow has a DELETE and then an UPDATE look at all rows, of which
// another transaction has one locked that they do not want.
func PassALockedRow() scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		waits := make(map[string]float64)
		for name, scan := range map[string]innodb.Scan{innodb.DeleteWaits: innodb.ScanDelete, innodb.UpdateWaits: innodb.ScanUpdate} {
			does, err := innodb.WaitsInPassing(ctx, db, scan)
			if err != nil {
				return err
			}
			if does {
				waits[name] = 1
			}
		}
		return figures(s, waits)
	})
}

// InsertTwice has two transactions insert the same row, round after round.
func InsertTwice(way innodb.Way, rounds int) scenario.Step {
	return probing(func(ctx context.Context, db *sql.DB, s *scenario.Environment) error {
		sum, err := innodb.InsertTwice(ctx, db, way, rounds)
		if err != nil {
			return err
		}
		if sum.Answer != "" {
			if err := s.Mark("database", sum.Answer); err != nil {
				return err
			}
		}
		return figures(s, map[string]float64{
			innodb.Inserted: float64(sum.Inserted), innodb.Duplicates: float64(sum.Duplicates), innodb.Deadlocks: float64(sum.Deadlocks),
		})
	})
}

// probing opens the database for a probe.
func probing(probe func(context.Context, *sql.DB, *scenario.Environment) error) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		db, err := innodb.Open(s.Backends.Database)
		if err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // nothing is lost with it
		return probe(ctx, db, s)
	}
}

// figures writes numbers down, in the order of their names.
func figures(s *scenario.Environment, numbers map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if err := s.Figure(name, numbers[name]); err != nil {
			return err
		}
	}
	return nil
}
