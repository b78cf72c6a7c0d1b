package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

// mostRounds is how many rounds of votes are drawn.
const mostRounds = 14

// The measures of votes: where their columns begin and how wide they are, in percent, and how high
// a row is, in pixels.
const (
	votesFrom  = 36.0
	voteWidth  = 5.5
	voteHeight = 20.0
)

// round is one try: what each master answered.
type round struct {
	holder string
	at     time.Time
	votes  []history.Event // one a master
	won    bool            // the lease was granted by it
	// again counts the same answers to the same holder after it, until a time.
	again int
	until time.Time
}

// same reports whether a later round of the same holder is the same.
func (r round) same(other round) bool {
	return r.holder == other.holder && r.won == other.won && slices.EqualFunc(r.votes, other.votes, func(a, b history.Event) bool { return a.By == b.By && a.What == b.What })
}

// folded counts rounds of a holder that follow a same one.
func folded(all []round) []round {
	var list []round
	last := make(map[string]int) // in list, by holder
	for _, r := range all {
		slices.SortFunc(r.votes, func(a, b history.Event) int { return cmp.Compare(a.By, b.By) })
		if i, ok := last[r.holder]; ok && list[i].same(r) {
			list[i].again, list[i].until = list[i].again+1, r.at
			continue
		}
		last[r.holder] = len(list)
		list = append(list, r)
	}
	return list
}

// voteKeys are the answers of a master.
func voteKeys() map[history.EventKind]Key {
	return map[history.EventKind]Key{
		history.VotedFor:     {"vote-for", "granted"},
		history.VotedAgainst: {"vote-against", "refused: it has another holder"},
		history.NoVote:       {"vote-none", "no answer, or an error"},
	}
}

// Votes draw what each of several masters answered to each try. It is nil where none was asked.
func Votes(h *history.History) *Picture {
	all := rounds(h)
	if len(all) == 0 {
		return nil
	}
	rows := folded(all)
	shown := worthy(rows)
	p := &Picture{Title: "How each master voted"}
	won := len(slices.DeleteFunc(slices.Clone(all), func(r round) bool { return !r.won }))
	p.Desc = fmt.Sprintf("%s, of which %s a lease.", Plural(len(all), "round of votes", "rounds of votes"), Plural(won, "granted", "granted"))
	if len(shown) < len(rows) {
		p.notef("%d of %d different rounds are drawn: those that granted a lease, and the first of the others.", len(shown), len(rows))
	}
	masters := mastersOf(all)
	for i, name := range masters {
		p.text("soft", votesFrom+(float64(i)+0.5)*voteWidth, 12, "middle", name)
	}
	p.text("soft", 0, 12, "", "asked, by")
	p.text("soft", votesFrom-1, 12, "end", "master")
	y, from := 18.0, extent(h).from
	for _, r := range shown {
		p.voted(r, masters, from, y)
		y += voteHeight
	}
	p.height = y
	for _, what := range []history.EventKind{history.VotedFor, history.VotedAgainst, history.NoVote} {
		p.Legend = append(p.Legend, voteKeys()[what])
	}
	return p
}

func (p *Picture) voted(r round, masters []string, from time.Time, y float64) {
	p.text("", 0, y+14, "", fmt.Sprintf("%s %s", Duration(r.at.Sub(from).Round(time.Millisecond)), r.holder))
	granted := 0
	for i, name := range masters {
		x := votesFrom + float64(i)*voteWidth
		at := slices.IndexFunc(r.votes, func(v history.Event) bool { return v.By == name })
		if at < 0 {
			p.rect("track", x, y+1, voteWidth-1, voteHeight-3, name+" was not asked")
			continue
		}
		vote := r.votes[at]
		key := voteKeys()[vote.What]
		if vote.What == history.VotedFor {
			granted++
		}
		p.rect(key.Class, x, y+1, voteWidth-1, voteHeight-3, fmt.Sprintf("master %s: %s, after %s", name, key.Words, Duration(vote.Took.Round(time.Microsecond))))
		p.text("vote", x+(voteWidth-1)/2, y+14, "middle", key.glyph())
	}
	said := fmt.Sprintf("%d of %d", granted, len(masters))
	if r.won {
		said += ", held"
	}
	if r.again > 0 {
		said += fmt.Sprintf(", %s until %s", Times(r.again+1), Duration(r.until.Sub(from).Round(time.Millisecond)))
	}
	p.text("", votesFrom+float64(len(masters))*voteWidth+1, y+14, "", said)
}

// rounds parts the votes of each lease into tries: a master answers once in each.
func rounds(h *history.History) []round {
	list := make([]round, 0, len(h.Leases))
	for _, l := range h.Leases {
		var tries []round
		for _, n := range l.Notes {
			if n.What != history.VotedFor && n.What != history.VotedAgainst && n.What != history.NoVote {
				continue
			}
			last := len(tries) - 1
			if last < 0 || slices.ContainsFunc(tries[last].votes, func(v history.Event) bool { return v.By == n.By }) {
				tries = append(tries, round{holder: l.Holder, at: n.At})
				last++
			}
			tries[last].votes = append(tries[last].votes, n)
		}
		if len(tries) > 0 {
			tries[len(tries)-1].won = !l.Granted.IsZero()
		}
		list = append(list, tries...)
	}
	slices.SortStableFunc(list, func(a, b round) int { return a.at.Compare(b.at) })
	return list
}

// worthy are the rounds that are drawn, in the order of time.
func worthy(all []round) []round {
	shown := slices.DeleteFunc(slices.Clone(all), func(r round) bool { return !r.won })
	shown = shown[:min(len(shown), mostRounds)]
	for _, r := range all {
		if !r.won && len(shown) < mostRounds {
			shown = append(shown, r)
		}
	}
	slices.SortStableFunc(shown, func(a, b round) int { return a.at.Compare(b.at) })
	return shown
}

func mastersOf(all []round) []string {
	var names []string
	for _, r := range all {
		for _, v := range r.votes {
			if !slices.Contains(names, v.By) {
				names = append(names, v.By)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
	return names
}

// The measures of wake-ups, in pixels, and how many releases are drawn.
const (
	wakesTop     = 16
	wakesHeight  = 120
	mostReleases = 80
)

// Wakes draw how many waiters looked again after each release. It is nil where no lease was released.
func Wakes(h *history.History) *Picture {
	counts, sum := wokenBy(h)
	if len(counts) == 0 {
		return nil
	}
	p := &Picture{Title: "Waiters that each release woke", height: wakesTop + wakesHeight + footHeight}
	p.Desc = fmt.Sprintf("%s, after which waiters were woken %s in all, and %s at most after one.", Plural(len(counts), "release", "releases"), Times(sum), Times(slices.Max(counts)))
	p.Legend = []Key{{"part", "waiters that looked again between this release and the next"}}
	if len(counts) > mostReleases {
		p.notef("The first %d of %d releases are drawn.", mostReleases, len(counts))
		counts = counts[:mostReleases]
	}
	a := axis{0, float64(max(holders(h), slices.Max(counts)))} // so that experiments can be compared
	p.valueAxis(a, wakesTop, wakesTop+wakesHeight)
	each := 94.0 / float64(len(counts)) // the labels of the axis are to the left
	for i, n := range counts {
		high := wakesHeight * a.share(float64(n))
		x := 6 + float64(i)*each
		p.rect("part", x, wakesTop+wakesHeight-high, each*0.7, high, fmt.Sprintf("release %d: %d", i+1, n))
	}
	p.line("base", 0, wakesTop+wakesHeight, 100, 0)
	p.text("soft", 6, wakesTop+wakesHeight+15, "", "first release")
	p.text("soft", 100, wakesTop+wakesHeight+15, "end", "last")
	return p
}

// wokenBy is how many waiters each release woke, in the order of time, and their sum.
func wokenBy(h *history.History) (counts []int, sum int) {
	contentions := checker.Contentions(h)
	released := make([]int, 0, len(h.Leases))
	for i, l := range h.Leases {
		if !l.Released.IsZero() {
			released = append(released, i)
		}
	}
	slices.SortStableFunc(released, func(a, b int) int { return h.Leases[a].Released.Compare(h.Leases[b].Released) })
	for _, i := range released {
		counts, sum = append(counts, contentions[i].Woke), sum+contentions[i].Woke
	}
	return counts, sum
}

// holders counts those that asked for a lease.
func holders(h *history.History) int {
	names := make(map[string]bool)
	for _, l := range h.Leases {
		names[l.Holder] = true
	}
	return len(names)
}

// signHeight is the strip of a lane in which its signs are, in pixels, mostSigns how many are
// drawn in a lane.
const (
	signHeight = 13
	mostSigns  = 80
)

// sign is what happened to a lease at a moment: a shape, and not a colour alone.
type sign struct {
	Key
	at time.Time
}

// signs are the kinds of signs, in the order of the legend.
func signs() []Key {
	return []Key{
		{"renewed", "renewed"},
		{"unrenewed", "not renewed"},
		{"expired", "its TTL was over"},
		{"woke", "a waiter was woken"},
	}
}

func signOf(class string, at time.Time) sign {
	all := signs()
	return sign{all[slices.IndexFunc(all, func(k Key) bool { return k.Class == class })], at}
}

// signsOf is what happened to leases within a window.
func signsOf(leases []history.Lease, window span) []sign {
	var list []sign
	for _, l := range leases {
		for _, n := range l.Notes {
			switch n.What {
			case history.Renewed:
				list = append(list, signOf("renewed", n.At))
			case history.NotRenewed:
				list = append(list, signOf("unrenewed", n.At))
			case history.Woken:
				list = append(list, signOf("woke", n.At))
			default: // votes have a picture of their own
			}
		}
		if at := l.Outlived(); !at.IsZero() {
			list = append(list, signOf("expired", at))
		}
	}
	list = slices.DeleteFunc(list, func(s sign) bool { return !window.meets(span{s.at, s.at}) })
	slices.SortStableFunc(list, func(a, b sign) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Class, b.Class)) })
	return list
}

// signed draws the signs of a lane below y, where it has any, and returns where it ends.
func (p *Picture) signed(c clock, list []sign, y float64) float64 {
	if len(list) == 0 {
		return y
	}
	if len(list) > mostSigns {
		p.notef("Of a lane with %d signs those of wake-ups are not drawn.", len(list))
		list = slices.DeleteFunc(slices.Clone(list), func(s sign) bool { return s.Class == "woke" })
		list = list[:min(len(list), mostSigns)]
	}
	for _, s := range list {
		p.text(s.Class, c.percent(s.at), y+signHeight-3, "middle", s.glyph())
	}
	return y + signHeight
}
