package step

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
)

func TestARuleThatWasNotArmedIsAnError(t *testing.T) {
	for name, wait := range map[string]scenario.Step{"met": Met(), "held": Held(), "passed": Pass()} {
		plan := scenario.Plan{Folder: t.TempDir(), Progress: nothing{}, Experiments: []scenario.Experiment{{Parts: []scenario.Part{{Name: "part", Steps: []scenario.Step{wait}}}}}}
		if _, err := scenario.On(t.Context(), &shop.Shop{Servers: &servers.Backends{Database: &servers.Database{}}}, plan); !errors.Is(err, errNotArmed) {
			t.Errorf("without a rule at the proxy one is %s: %v", name, err)
		}
	}
}

type nothing struct{}

func (nothing) Say(string)                                  {}
func (nothing) Begin(int)                                   {}
func (nothing) Try(scenario.Experiment, scenario.Part, int) {}
func (nothing) Done(scenario.Result)                        {}
func (nothing) End()                                        {}
