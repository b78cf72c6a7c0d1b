package bench

import "time"

// Pace says how long a suite may take.
type Pace struct {
	// Each is how long each measurement takes; 0: as long as there is time until
	// Until for all that are to come.
	Each  time.Duration
	Until time.Time
	// End is that of everything, of which the suite may be a part.
	End time.Time
}

// The shortest and the longest measurement that is planned.
const (
	shortest = 250 * time.Millisecond
	longest  = 4 * time.Second
)

// until is the time that is left, or 0.
func until(t time.Time) time.Duration { return max(0, time.Until(t)) }

func (p Pace) begin(measurements int) *pacer {
	return &pacer{pace: p, left: measurements, overhead: 300 * time.Millisecond}
}

// pacer shares the time out among the measurements that are left. They have a
// beginning and an end of their own, which it learns.
type pacer struct {
	pace     Pace
	left     int
	overhead time.Duration
	dropped  int
}

// each is how long the next measurement is to take.
func (p *pacer) each() time.Duration {
	if p.pace.Each > 0 {
		return p.pace.Each
	}
	share := until(p.pace.Until) / time.Duration(max(1, p.left))
	return min(max(share-p.overhead, shortest), longest)
}

// took learns from the duration of a measurement that was to take each.
func (p *pacer) took(all, each time.Duration) {
	const weight = 16 // of what was known before
	p.overhead += (max(0, all-each) - p.overhead) / weight
	p.left--
}

// late tells that the time is up.
func (p *pacer) late() bool { return p.pace.Each == 0 && until(p.pace.Until) == 0 }

// skip leaves one out that cannot be measured, drop one for lack of time.
func (p *pacer) skip() { p.left-- }

func (p *pacer) drop() {
	p.left--
	p.dropped++
}
