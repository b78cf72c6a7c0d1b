package repo_test

import (
	"maps"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

func TestSwitches(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		one, other := labtest.Open(t, d, "one"), labtest.Open(t, d, "other")
		for _, step := range []struct {
			name string
			do   func() error
			want map[string]string
		}{
			{"nothing is off at first", func() error { return nil }, map[string]string{}},
			{"off", func() error { return one.SwitchOff(t.Context(), "mutex", "it oversells, 库存 < 0") }, map[string]string{"mutex": "it oversells, 库存 < 0"}},
			{"another one off", func() error { return other.SwitchOff(t.Context(), "naive", "so it does") }, map[string]string{"mutex": "it oversells, 库存 < 0", "naive": "so it does"}},
			{"off again, for another reason", func() error { return other.SwitchOff(t.Context(), "mutex", "as ever") }, map[string]string{"mutex": "as ever", "naive": "so it does"}},
			{"on", func() error { return one.SwitchOn(t.Context(), "mutex") }, map[string]string{"naive": "so it does"}},
			{"on again", func() error { return other.SwitchOn(t.Context(), "mutex") }, map[string]string{"naive": "so it does"}},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if got, err := one.SwitchedOff(t.Context()); err != nil || !maps.Equal(got, step.want) {
				t.Errorf("%s: %v are off (%v), want %v", step.name, got, err, step.want)
			}
		}
	})
}
