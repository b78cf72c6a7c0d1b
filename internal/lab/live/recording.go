package live

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/load"
)

// Recording is what can be played again: everything that was measured, with its times. The
// page shows a moment of it by leaving out what came later.
type Recording struct {
	// Title says what it is of.
	Title string `json:"title"`
	// Part is the part of an experiment that it is of; nil: it is of a sale.
	Part *PlayPart `json:"part,omitempty"`
	// Narration is what is said of its moments.
	Narration []experiments.Line `json:"narration,omitempty"`
	State

	// Code is that of the strategies that sold, by their names.
	Code map[string][]Listing `json:"code"`
}

// maxRecordedLeases bounds the leases of a recording: the newest ones are kept.
const maxRecordedLeases = 5000

// Recording is the sale that is on the page, as far as it has come.
func (s *Session) Recording() (Recording, error) {
	r := Recording{Title: "stocklab live"}
	s.hub.look(func(state *State) {
		r.State = *state
		r.Buyers = nil // their names are not for those who get the file
		r.Leases = newest(slices.Concat(state.past, state.Leases))
		r.Points, r.Marks = slices.Clone(state.Points), slices.Clone(state.Marks)
		r.Machines = slices.Clone(state.Machines)
		r.Lanes.Whole = state.passed
		if len(state.past) == maxRecordedLeases { // older ones were dropped
			r.Lanes.Whole = max(r.Lanes.Whole, state.past[0].Asked)
		}
	})
	for _, m := range r.Sale.Modes {
		r.Title += ", " + m.String()
	}
	return r, r.describe()
}

// newest keeps the last form of each lease, in the order in which they were asked for first.
func newest(leases []Lease) []Lease {
	at := make(map[string]int, len(leases))
	list := make([]Lease, 0, len(leases))
	for _, l := range leases {
		if i, known := at[l.ID]; known {
			list[i] = l
			continue
		}
		at[l.ID] = len(list)
		list = append(list, l)
	}
	return list
}

// describe adds the code of the strategies that sold, and leaves out what is known of others.
func (r *Recording) describe() error {
	r.Code = make(map[string][]Listing)
	sold := r.Strategies[:0:0]
	for _, d := range r.Strategies {
		if slices.ContainsFunc(r.Sale.Modes, func(m Mode) bool { return m.Strategy == d.Name }) {
			sold = append(sold, d)
			code, err := listings(d.Name)
			if err != nil {
				return err
			}
			r.Code[d.Name] = code
		}
	}
	r.Strategies = sold
	return nil
}

// pieces is how many points an experiment is drawn with.
const pieces = 240

// OfHistory makes a recording of what an experiment has recorded: its requests become answers,
// its samples the stock. Of several items it shows the first.
func OfHistory(title string, h *history.History) Recording {
	r := Recording{Title: title, State: State{Points: []Point{}, Leases: []Lease{}, Marks: []Mark{}, Machines: []Machine{}}}
	from, to := h.Extent()
	if !to.After(from) {
		return r
	}
	holders, traces := make(map[string]bool), make(map[string]history.Trace, len(h.Traces))
	for _, t := range h.Traces {
		traces[t.Request] = t
	}
	contentions := checker.Contentions(h)
	for i, l := range h.Leases {
		holders[l.Holder] = true
		r.Leases = append(r.Leases, ofRecord(l, contentions[i], traces[l.Request], to))
	}
	if over := len(r.Leases) - maxRecordedLeases; over > 0 {
		r.Lanes.Whole = r.Leases[over].Asked
		r.Leases = r.Leases[over:]
	}
	if len(r.Leases) == 0 {
		for _, l := range requestsOf(h) {
			if holders[l.Holder] || len(holders) < maxLanes {
				holders[l.Holder], r.Leases = true, append(r.Leases, l)
			}
		}
	}
	for _, m := range h.Marks {
		r.Marks = append(r.Marks, Mark{At: millis(m.At), Who: m.Who, What: m.What})
	}
	r.Marks = bounded(r.Marks, maxMarks)
	for _, name := range slices.SortedFunc(maps.Keys(holders), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) {
		r.Machines = append(r.Machines, laneOf(name))
	}
	units, stock := seen(h)
	r.Points, r.Apart = append(append(r.Points, stock...), answered(h, from, to)...), true
	slices.SortStableFunc(r.Points, func(a, b Point) int { return cmp.Compare(a.At, b.At) })
	r.Lanes.Until = millis(to)
	r.Sale = Sale{Phase: Ended, Modes: []Mode{}, Settings: Settings{Stock: units}}
	return r
}

// maxLanes bounds the lanes of requests.
const maxLanes = 10

// requestsOf are the requests of a history without leases, in the form of these and without a lock: those that were traced,
// with their steps, each in a row of its replica in which no other is under way; or else those of each buyer.
func requestsOf(h *history.History) (list []Lease) {
	for _, t := range h.Traces {
		l := history.Lease{ID: t.Request, Holder: t.Replica, Request: t.Request, Asked: t.Start(), Granted: t.Start(), Released: t.End()}
		list = append(list, ofRecord(l, checker.Contention{}, t, t.End()))
	}
	for i, r := range h.Requests {
		if len(h.Traces) > 0 {
			break
		}
		l := history.Lease{ID: fmt.Sprint(i), Holder: fmt.Sprint("buyer ", r.Client+1), Asked: r.Start, Granted: r.Start, Released: r.End}
		if r.Outcome != history.Sold {
			l.Error = string(r.Outcome)
		}
		list = append(list, ofRecord(l, checker.Contention{}, history.Trace{}, r.End))
	}
	free := make(map[string]Millis)
	for i := range list {
		l := &list[i]
		for at, n := l.Holder, 2; free[l.Holder] > l.Asked; n++ {
			l.Holder = fmt.Sprintf("%s (%d)", at, n)
		}
		free[l.Holder] = l.Released
	}
	return list
}

// laneOf is a holder of a history.
func laneOf(holder string) Machine { return Machine{Name: holder, Kind: "replica", Status: running} }

// addSeen adds what was seen of row and ledger in the try that is on the page: a history has but a few
// samples.
func (r *Recording) addSeen(s *State) {
	for _, p := range s.Points {
		if p.Seen > 0 {
			r.Points = append(r.Points, Point{At: p.Seen, Seen: p.Seen, Stock: p.Stock, Sold: p.Sold, Oversold: p.Oversold, Lost: p.Lost})
		}
	}
	slices.SortStableFunc(r.Points, func(a, b Point) int { return cmp.Compare(a.At, b.At) })
	r.Sale.Settings.Stock = cmp.Or(r.Sale.Settings.Stock, s.Sale.Settings.Stock)
}

// seen is what there was of the item that was sampled first, and its samples and the audit after them as points.
func seen(h *history.History) (units int64, list []Point) {
	if len(h.Samples) == 0 {
		return 0, nil
	}
	first := h.Samples[0]
	units = first.Stock + first.Sold
	for _, a := range h.Audits {
		if a.GoodsID == first.GoodsID {
			units = a.Initial // a sample may have lost updates already
		}
	}
	until := first.At
	add := func(at time.Time, stock, sold, oversold, lost int64) {
		list = append(list, Point{At: millis(at), Seen: millis(at), Stock: stock, Sold: sold, Oversold: oversold, Lost: lost})
	}
	for _, s := range h.Samples {
		if s.GoodsID == first.GoodsID {
			add(s.At, s.Stock, s.Sold, max(0, s.Sold-units), s.Stock+s.Sold-units)
			until = s.At
		}
	}
	for _, a := range h.Audits {
		if a.GoodsID == first.GoodsID && a.At.After(until) {
			add(a.At, a.Stock, a.Sold, a.Oversold, a.Lost)
		}
	}
	return units, list
}

// answered are the answers to requests as points, at equal distances.
func answered(h *history.History, from, to time.Time) (list []Point) {
	if len(h.Requests) == 0 {
		return nil
	}
	each := to.Sub(from)/pieces + 1
	meters := make([]*meter, pieces)
	for _, r := range h.Requests {
		i := min(max(0, int(r.End.Sub(from)/each)), pieces-1)
		if meters[i] == nil {
			meters[i] = newMeter()
			meters[i].since = from.Add(time.Duration(i) * each)
		}
		meters[i].observe(answerOf(r))
	}
	for i, m := range meters {
		end := from.Add(time.Duration(i+1) * each)
		if m == nil {
			list = append(list, Point{At: millis(end), Seconds: each.Seconds()})
			continue
		}
		list = append(list, m.read(end))
	}
	return list
}

// kinds are those of answers for the outcomes of a history.
func kinds() map[history.Outcome]load.Kind {
	return map[history.Outcome]load.Kind{history.Sold: load.Sold, history.Rejected: load.Rejected, history.Failed: load.Failed, history.Unknown: load.Unknown}
}

// Save writes recordings as one file that a browser opens without a server: the page itself, with
// its scripts and styles inside. It loads nothing, and its policy lets it load nothing.
func Save(w io.Writer, recordings ...Recording) error {
	data, err := packed(recordings)
	if err != nil {
		return err
	}
	return save(w, block("recordings", data))
}

// block is data in a file, as the page finds it.
func block(id, data string) string {
	return fmt.Sprintf("<script type=\"application/gzip\" id=\"%s\">%s</script>\n", id, data)
}

func save(w io.Writer, blocks ...string) error {
	styles, library, script := joined("lib/uPlot.css", "style.css"), joined("lib/uPlot.js"), bundled()
	head := fmt.Sprintf("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src %s; script-src %s %s; base-uri 'none'; form-action 'none'\">\n"+
		"<style>%s</style>\n", allowed(styles), allowed(library), allowed(script), styles)
	end := fmt.Sprintf("%s<script>%s</script>\n<script type=\"module\">%s</script>\n</body>", strings.Join(blocks, ""), library, script)
	loaded := regexp.MustCompile(`(?m)^<(?:script|link) [^>]*(?:src|href)="[a-zA-Z/]+\.(?:css|js)"[^>]*>(?:</script>)?\n`)
	text := loaded.ReplaceAllString(joined("index.html"), "")
	text = strings.Replace(text, "</head>", head+"</head>", 1)
	text = strings.Replace(text, "</body>", end, 1)
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("save page: %w", err)
	}
	return nil
}

// packed is data as the page unpacks it: JSON, compressed, in base64. Of the JSON of many leases
// some tenth is left.
func packed(data any) (string, error) {
	var all bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &all)
	zipped := gzip.NewWriter(text)
	if err := errors.Join(json.NewEncoder(zipped).Encode(data), zipped.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("save page: %w", err)
	}
	return all.String(), nil
}

// allowed is how a policy names a text that may be in the file.
func allowed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// joined are files of the page, one after the other.
func joined(files ...string) (all string) {
	for _, file := range files {
		content, err := page.ReadFile("page/" + file)
		if err != nil {
			panic(err) // it is part of the program
		}
		all += string(content) + "\n"
	}
	return all
}

// bundled is all modules in one: each is a function of its own, which returns what it exports.
func bundled() string {
	imported := regexp.MustCompile(`(?m)^import (\{[^}]*\}) from '\./([a-z]+)\.js';$`)
	exported := regexp.MustCompile(`(?m)^export (const|function|class) ([\w$]+)`)
	var all strings.Builder
	for _, file := range []string{ // each after those that it imports
		"words.js", "summaries.js", "charts.js", "notes.js", "lanes.js", "panels.js", "lab.js", "story.js", "beside.js", "trace.js", "replay.js", "verdict.js", "compare.js", "guest.js", "trial.js", "report.js", "tour.js", "app.js",
	} {
		text := joined(file)
		found := exported.FindAllStringSubmatch(text, -1)
		names := make([]string, len(found))
		for i, one := range found {
			names[i] = one[2]
		}
		text = imported.ReplaceAllString(text, "const $1 = of_$2;")
		text = exported.ReplaceAllString(text, "$1 $2")
		fmt.Fprintf(&all, "const of_%s = (() => {\n%s\nreturn { %s };\n})();\n", strings.TrimSuffix(file, ".js"), text, strings.Join(names, ", "))
	}
	return all.String()
}

// Report is a run of the command line as the page shows it.
type Report struct {
	// Facts are what it was made on.
	Facts []Fact `json:"facts"`
	// Interrupted tells that it was ended before its last experiment.
	Interrupted bool    `json:"interrupted"`
	Experiments []*Play `json:"experiments"`
}

// Fact is a name and a value, for people.
type Fact struct {
	Name    string `json:"name"`
	Chinese string `json:"zh,omitempty"` // the name, where there is one
	Value   string `json:"value"`
}

// Save writes the report as one file that a browser opens without a server.
func (r Report) Save(w io.Writer) error {
	data, err := packed(r)
	if err != nil {
		return err
	}
	blocks := []string{block("run", data)}
	for _, e := range r.Experiments {
		recordings, err := packed(e.Recordings)
		if err != nil {
			return err
		}
		blocks = append(blocks, block("of-"+e.Name, recordings))
	}
	return save(w, blocks...)
}
