package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWaitersAreDrawnByTheNumberOfClients(t *testing.T) {
	r := drawn()
	for i, l := range waitings() {
		for _, clients := range []int{512, 1} {
			samples := 1 + 2*i // the rounds are those of the first lock
			if clients == 1 {
				samples++
			}
			f := figure("", "/s", slices.Repeat([]float64{float64(100 * (i + 1))}, samples))
			f.Setting = Setting{Strategy: l.strategy, Clients: clients, Replicas: 1}
			r.Subjects = append(r.Subjects, f)
		}
	}
	var picture strings.Builder
	if err := r.Waiters(&picture); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"redis-reentrant: a waiter is woken by a message: 200 at 1, 200 at 512", "zk-sequential", "2 rounds of 1 client, 1 round of 512 clients", "3 replicas behind nginx"} {
		if !strings.Contains(picture.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, picture.String())
		}
	}
	if strings.Contains(picture.String(), "sql-conditional") {
		t.Error("it has another strategy")
	}
}

func TestWaitersNeedTheirStrategies(t *testing.T) {
	if err := drawn().Waiters(&strings.Builder{}); !errors.Is(err, errNotMeasured) {
		t.Errorf("%v, want %v", err, errNotMeasured)
	}
}
