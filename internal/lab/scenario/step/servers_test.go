package step_test

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func TestARuleThatWasNotArmedIsAnError(t *testing.T) {
	for name, wait := range map[string]scenario.Step{"met": step.Met(), "held": step.Held(), "passed": step.Pass()} {
		if err := wait(t.Context(), &scenario.Environment{}); err == nil {
			t.Errorf("without a rule at the proxy one is %s", name)
		}
	}
}
