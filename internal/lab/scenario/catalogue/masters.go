package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

// masterTTL is how long a lock on the masters lasts when its holder is silent.
const masterTTL = 3 * time.Second

// onMasters is three replicas whose locks are on five masters of their own.
func onMasters(o servers.RedlockOptions) scenario.Stage {
	stage := onRedis("STOCKD_LOCK_TTL="+masterTTL.String(), "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s")
	stage.Servers = step.OnMasters(o)
	return stage
}

// threeOfFive has the first replica hold the lock by the votes of masters 1 to 3
// alone, and work for two thirds of its time, ignoring cancellation. Something
// happens to master 3, and the second replica wants the lock.
func threeOfFive(name string, fence bool, o servers.RedlockOptions, happens scenario.Step, does, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onMasters(o),
		Does:   "replica 1 holds redlock by the votes of masters 1, 2 and 3, and works; " + does + "; replica 2 wants the lock",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.CutOff(4, 5), step.Hold(1, masterTTL*2/3), step.Hold(2, 300*time.Millisecond),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: "redlock", Fence: fence, Replica: 1}),
				step.InOrder(step.Reached(1), step.Meanwhile(
					happens,
					step.InOrder(step.Wait(200*time.Millisecond), step.Buy(step.Sale{Strategy: "redlock", Fence: fence, Replica: 2, First: 1})),
				)),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
