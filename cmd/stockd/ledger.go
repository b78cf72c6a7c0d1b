package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
)

func ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Move old rows of the ledger, and of reservations, into archives",
		Example: "  stockd ledger archive --older-than 2160h\n" +
			"  stockd ledger archive --older-than 2160h --config configs/production.yaml",
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError{Err: errors.New("say what: stockd ledger archive")}
		},
	}
	cmd.AddCommand(archiveCommand())
	return cmd
}

func archiveCommand() *cobra.Command {
	var plan archivePlan
	var write string
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Move the oldest rows of the ledger, and ended reservations, into archives, in batches",
		Long: "Move the oldest rows of the ledger into tb_ledger_archive, in batches, until none is left that is old\n" +
			"enough, and then reservations that were released or expired into tb_reservation_archive. Replicas go on\n" +
			"selling. Nothing is deleted: orders, keys, reservations, returns and audits are as before.\n\n" +
			"A row is moved an hour after a replica has added it to the running totals at the earliest, and the\n" +
			"newest row stays. An interrupt ends it between two batches; running it again goes on.",
		Example: "  stockd ledger archive --older-than 2160h --config configs/production.yaml\n" +
			"  stockd ledger archive --older-than 720h --batch 2000 --pause 100ms --json archive.json",
	}
	flags := cmd.Flags()
	flags.DurationVar(&plan.olderThan, "older-than", 0, "move what was accepted, or expired, longer ago, at least 1h")
	flags.IntVar(&plan.batch, "batch", 10_000, fmt.Sprintf("rows of one transaction, 1 to %d", repo.MaxArchived))
	flags.DurationVar(&plan.pause, "pause", 0, "wait so long between two batches")
	flags.StringVar(&write, "json", "", "file to write the figures to")
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) (err error) {
		if err := plan.check(); err != nil {
			return cli.UsageError{Err: err}
		}
		store, err := replica.OpenStore(ctx, c.Config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		done, err := plan.archive(ctx, store, cmd.ErrOrStderr())
		if done.Ended == endedInterrupted {
			err = errors.New("interrupted: run it again to go on")
		}
		if failed := done.show(cmd.OutOrStdout()); failed != nil || write == "" {
			return errors.Join(err, failed)
		}
		return errors.Join(err, verdict.WriteJSON(write, done))
	})
}

// archivePlan is what is archived, and how.
type archivePlan struct {
	olderThan, pause time.Duration
	batch            int
}

func (p archivePlan) check() error {
	switch {
	case p.olderThan < repo.MinAge:
		return fmt.Errorf("--older-than must be at least 1h, not %s", p.olderThan)
	case p.batch < 1 || p.batch > repo.MaxArchived:
		return fmt.Errorf("--batch must be 1 to %d, not %d", repo.MaxArchived, p.batch)
	case p.pause < 0:
		return fmt.Errorf("--pause must not be negative, but is %s", p.pause)
	}
	return nil
}

// archived are the figures of a run.
type archived struct {
	Moved int64 `json:"moved"`
	// Reservations are those that have ended, and were moved.
	Reservations int64 `json:"reservations"`

	Batches int     `json:"batches"`
	Seconds float64 `json:"seconds"`
	// UpTo is the last row of the archive, and Newest that of the ledger.
	UpTo   int64 `json:"archived_up_to"`
	Newest int64 `json:"newest"`
	// Ended is why no more was moved.
	Ended string `json:"ended"`
}

const (
	// archiveSays is how often progress is reported.
	archiveSays = time.Second

	endedYoung       = "no older row is left"
	endedNewest      = "the newest row stays"
	endedTotals      = "the running totals are behind: a row is moved an hour after a running replica has added it to them"
	endedInterrupted = "interrupted"
	endedFailed      = "failed"
)

// archive moves batches until nothing is left to move, or ctx ends. A batch that has begun is not cut.
func (p archivePlan) archive(ctx context.Context, store *repo.Store, progress io.Writer) (done archived, err error) {
	begun, said := time.Now(), time.Now()
	before := begun.Add(-p.olderThan)
	interrupted := ctx.Err()
	for ; interrupted == nil; interrupted = pause.For(ctx, p.pause) {
		var moved int64
		if moved, err = p.move(context.WithoutCancel(ctx), store, before, &done); err != nil || moved == 0 {
			break
		}
		done.Batches++
		if time.Since(said) > archiveSays {
			said = time.Now()
			fmt.Fprintf(progress, "%d rows archived in %s\n", done.Moved+done.Reservations, time.Since(begun).Round(time.Second)) //nolint:errcheck // progress is not a result
		}
	}
	done.Seconds = time.Since(begun).Seconds()
	at, failed := store.ArchiveState(context.WithoutCancel(ctx))
	done.UpTo, done.Newest = at.Archived, at.Last
	switch {
	case err != nil || failed != nil:
		done.Ended = endedFailed
	case interrupted != nil:
		done.Ended = endedInterrupted
	default:
		done.Ended = whyEnded(at, before)
	}
	return done, errors.Join(err, failed)
}

// move moves one batch of the ledger or, where no more of it can be moved, of reservations.
func (p archivePlan) move(ctx context.Context, store *repo.Store, before time.Time, done *archived) (moved int64, err error) {
	moved, err = store.Archive(ctx, before, p.batch)
	done.Moved += moved
	if err != nil || moved > 0 {
		return moved, err
	}
	moved, err = store.ArchiveReservations(ctx, before, p.batch)
	done.Reservations += moved
	return moved, err
}

// whyEnded is why the first row of the ledger was not moved.
func whyEnded(at repo.ArchiveState, before time.Time) string {
	switch {
	case at.First == 0 || !at.Oldest.Before(before):
		return endedYoung
	case at.First == at.Last:
		return endedNewest
	default:
		return endedTotals
	}
}

func (a archived) show(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "moved\treservations\tbatches\tseconds\tarchived up to row\tnewest row\tended\n") //nolint:errcheck // Flush tells
	fmt.Fprintf(table, "%d\t%d\t%d\t%.1f\t%d\t%d\t%s\n",                                                 //nolint:errcheck // Flush tells
		a.Moved, a.Reservations, a.Batches, a.Seconds, a.UpTo, a.Newest, a.Ended)
	return table.Flush()
}
