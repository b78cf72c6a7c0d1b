package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load/verdict"
)

// overview is the experiment of which the README has a picture.
const overview = "oversell"

// Overview writes oversell.json, the stock and the sales of experiment 1 over time,
// and oversell.svg, which is drawn from it, into a folder.
func Overview(folder, runFolder string) error {
	r, err := Read(runFolder)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(r.Experiments, func(e scenario.Result) bool { return e.Name == overview })
	if at < 0 {
		return fmt.Errorf("%s has no experiment %s", runFolder, overview)
	}
	var sales []Sale
	for _, part := range r.Experiments[at].Parts {
		h, err := history.Read(filepath.Join(runFolder, part.History))
		if err != nil {
			return fmt.Errorf("draw %s: %w", part.Name, err)
		}
		sale := SaleOf(h)
		if len(sale.Points) == 0 {
			return fmt.Errorf("draw %s: its history has no samples", part.Name)
		}
		sales = append(sales, sale)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write pictures: %w", err)
	}
	if err := verdict.WriteJSON(filepath.Join(folder, overview+".json"), sales); err != nil {
		return err
	}
	return save(filepath.Join(folder, overview+".svg"), Sales(sales))
}
