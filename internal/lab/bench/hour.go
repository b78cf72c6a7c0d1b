package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/load"
)

// What an hour of a sale costs is measured at a scale of 1:100: its processor time for a million buyers, in seconds, is that
// of one request in microseconds.
const (
	hourUnits  = 100
	hourBuyers = 10_000
)

// hours are what a million buyers of 10,000 units cost, each of whom asks once.
func (s *stage) hours() (list []Subject) {
	for _, d := range s.strategies {
		if d.Name == conditional || d.Name == inRedis {
			how := Setting{Strategy: d.Name, Group: d.Name == conditional, Clients: usual, Replicas: s.replicas}
			list = append(list, s.hour(how.strategy(), func(ctx context.Context) (load.Plan, error) {
				goodsID, err := s.create(ctx, hourUnits)
				return s.plan(how, &shelf{goods: []int64{goodsID}}), err
			}))
		}
	}
	if s.programs[baseline.Update] != nil {
		list = append(list, s.hour(baseline.Update, func(ctx context.Context) (load.Plan, error) {
			goodsID := s.items.Add(1)
			_, err := s.bare.ExecContext(ctx, baseline.AddGoods, goodsID, hourUnits)
			return load.Plan{URL: s.url(s.programs[baseline.Update]), GoodsID: goodsID, Timeout: requestLimit}, err
		}))
	}
	return list
}

func (s *stage) hour(name string, stockUp func(context.Context) (load.Plan, error)) Subject {
	return Subject{Name: hourOf(name), Unit: " s", Measure: func(ctx context.Context, _ time.Duration) (Sample, error) {
		plan, err := stockUp(ctx)
		if err != nil {
			return Sample{}, err
		}
		plan.Clients, plan.Requests = usual, hourBuyers
		before := s.used()
		result, err := load.Run(ctx, plan)
		switch {
		case err != nil:
			return Sample{}, err
		case result.Sold != hourUnits || result.Failed() > 0:
			return Sample{}, fmt.Errorf("%d of %d units were sold to %d buyers: %v", result.Sold, hourUnits, result.Sent, result.Errors)
		}
		return Sample{Value: costs(before, s.used(), result.Sent).sum()}, nil
	}}
}

func hourOf(name string) string { return "10,000 units for a million buyers, " + name }

// Hour draws what an hour costs, as SVG.
func (r *Result) Hour(w io.Writer) error {
	panel := report.Panel{Title: "all programs but the clients", Unit: "seconds of processor time"}
	chart := report.Ranges{Title: "10,000 units for a million buyers, simulated at 1:100", Notes: r.chartNotes()}
	for _, how := range []Setting{{Kind: baseline.Update}, {Strategy: conditional, Group: true}, {Strategy: inRedis}} {
		for _, f := range r.Subjects {
			if f.Name == hourOf(how.strategy()) {
				panel.Medians = append(panel.Medians, report.Median{
					Row: len(chart.Rows), Grouped: how.Group, Value: f.Median, Min: f.Min, Max: f.Max, Words: fmt.Sprintf("%s: %.0f s", how.strategy(), f.Median),
				})
				chart.Rows = append(chart.Rows, cmp.Or(how.Strategy, how.Kind))
			}
		}
	}
	if len(panel.Medians) == 0 {
		return fmt.Errorf("draw an hour: %w", errNotMeasured)
	}
	chart.Panels = []report.Panel{panel}
	return chart.Draw().File(w)
}
