package main

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/service/strategy"
)

func TestAnExperimentMayDoWithoutASafeguard(t *testing.T) {
	usual := strategy.Deps{UnitRows: 500, Retry: strategy.Retry{Tries: 50, Step: time.Millisecond, Max: time.Second}}
	for name, gone := range map[string]func(strategy.Deps) bool{
		"reaper":     func(d strategy.Deps) bool { return d.Lock.Unreaped },
		"one-server": func(d strategy.Deps) bool { return d.Lock.NodeLocks },
		"pause":      func(d strategy.Deps) bool { return d.Retry == strategy.Retry{Tries: 10_000, Max: time.Second} },
		"pool":       func(d strategy.Deps) bool { return d.UnitRows == 8 },
	} {
		if deps := without(config.Config{}, usual); gone(deps) || deps.Lock.Now != nil {
			t.Errorf("where nothing is changed, %s is gone: %+v", name, deps)
		}
		if deps := without(config.Config{Lab: config.Lab{Without: []string{name}}}, usual); !gone(deps) {
			t.Errorf("without %s: %+v", name, deps)
		}
	}
	deps := without(config.Config{Lab: config.Lab{ClockOffset: time.Hour}}, usual)
	if ahead := time.Until(deps.Lock.Now()); ahead < 59*time.Minute || ahead > 61*time.Minute {
		t.Errorf("the clock is ahead by %s, want an hour", ahead)
	}
}
