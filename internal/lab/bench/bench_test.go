package bench

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// counting measures 1, 2, 3, … times a factor.
func counting(factor float64) func(context.Context) (float64, error) {
	n := 0.0
	return func(context.Context) (float64, error) { n++; return n * factor, nil }
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	suite := Suite{
		Rounds:   4,
		Subjects: []Subject{{Name: "fast", Measure: counting(3)}, {Name: "slow", Measure: counting(2)}},
		Ratios:   []Ratio{{Name: "reached", Of: "fast", By: "slow", AtLeast: 1.5}, {Name: "missed", Of: "slow", By: "fast", AtLeast: 0.7}},
		Limits:   []Limit{{Subject: "fast", AtMost: 11}},
	}
	r, err := suite.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Subjects[0]; f.Median != 7.5 || f.Min != 3 || f.Max != 12 || f.Reached {
		t.Errorf("the subject is %+v, want a median of 7.5 from 3 to 12, above its limit", f)
	}
	if f := r.Ratios[0]; f.Median != 1.5 || f.Min != 1.5 || f.Max != 1.5 || !f.Reached {
		t.Errorf("the ratio is %+v, want 1.5 in every round", f)
	}
	if r.Ratios[1].Reached {
		t.Errorf("the ratio %+v is taken for reached", r.Ratios[1])
	}
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "not reached") {
		t.Errorf("the table does not say what was not reached:\n%s", table.String())
	}
}

func TestAMeasurementThatFailsEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	suite := Suite{Rounds: 1, Subjects: []Subject{{Name: "s", Measure: func(context.Context) (float64, error) { return 0, broken }}}}
	if _, err := suite.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

func TestPeakMemoryIsThatOfTheProcess(t *testing.T) {
	before, err := peakMemory(os.Getpid())
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = byte(i)
	}
	after, err := peakMemory(os.Getpid())
	if err != nil || after-before < 32<<20 {
		t.Errorf("64 MiB more took the peak from %d to %d (%v); %d", before, after, err, block[5])
	}
}
