package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Count is a whole number with its thousands apart.
func Count[N int | int64](n N) string { return humanize.Comma(int64(n)) }

// Plural is a count with its noun: "1 try", "3 tries".
func Plural[N int | float64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Value(float64(n)) + " " + many
}

// Sentence begins with a capital letter and ends with a stop.
func Sentence(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return Stop(strings.ToUpper(s[:size]) + s[size:])
}

// Stop ends with one.
func Stop(s string) string {
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".!?:") {
		return s
	}
	return s + "."
}

// Value is a number with no more digits than it means: three where it is not
// whole.
func Value(v float64) string {
	size := math.Abs(v)
	switch {
	case v == math.Trunc(v) || size >= 100:
		return humanize.Comma(int64(math.Round(v)))
	case size >= 10:
		return rounded(v, 10)
	case size >= 0.1:
		return rounded(v, 100)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// rounded is a number to such a part of one, such as a tenth.
func rounded(v, part float64) string {
	return strconv.FormatFloat(math.Round(v*part)/part, 'f', -1, 64)
}

// Duration is a time in the unit that fits it, from µs to minutes.
func Duration(d time.Duration) string {
	switch size := d.Abs(); {
	case size >= time.Minute:
		whole := d.Round(time.Second)
		return fmt.Sprintf("%d min %d s", int(whole.Minutes()), int(whole.Seconds())%60)
	case size >= time.Second:
		return Value(d.Seconds()) + " s"
	case size >= time.Millisecond:
		return Value(float64(d)/float64(time.Millisecond)) + " ms"
	case d == 0:
		return "0 ms"
	default:
		return Value(float64(d)/float64(time.Microsecond)) + " µs"
	}
}

// Seconds is Duration of a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Figure is a number of a finding as its name and its value with the unit that
// the name ends in: oversold_units of 412 are "oversold" and "412 units".
func Figure(name string, v float64) (label, value string) {
	for unit, words := range map[string]func(float64) string{
		"_ms":    func(v float64) string { return Seconds(v / 1e3) },
		"_per_s": func(v float64) string { return Value(v) + "/s" },
		"_units": func(v float64) string { return Plural(v, "unit", "units") },
	} {
		if rest, ok := strings.CutSuffix(name, unit); ok {
			return strings.ReplaceAll(rest, "_", " "), words(v)
		}
	}
	return strings.ReplaceAll(name, "_", " "), Value(v)
}

// sign is how a verdict is shown: with a mark for readers who see no colours.
type sign struct {
	Mark, Chinese string
	colour        text.Color
}

func signOf(v experiments.Verdict) sign {
	switch v {
	case experiments.Reproduced:
		return sign{"✓", "已复现", text.FgGreen}
	case experiments.NotReproduced:
		return sign{"✗", "未复现", text.FgRed}
	default:
		return sign{"–", "未运行", text.FgYellow}
	}
}

func facts(r *experiments.Report) []live.Fact {
	m := r.Machine
	list := slices.DeleteFunc([]live.Fact{
		{Name: "Started", Chinese: "开始时间", Value: r.Start.UTC().Format("2006-01-02 15:04:05 UTC")},
		{Name: "Took", Chinese: "用时", Value: Seconds(r.Seconds)},
		{Name: "Commit", Chinese: "提交", Value: Commit(m.Commit)},
		{Name: "Go", Value: strings.TrimPrefix(m.Go, "go")},
		{Name: "Processor", Chinese: "处理器", Value: fmt.Sprintf("%s, %s", m.CPU, Plural(m.Processors, "processor", "processors"))},
		{Name: "Memory", Chinese: "内存", Value: m.Memory},
		{Name: "System", Chinese: "系统", Value: m.OS},
		{Name: "Load before", Chinese: "运行前负载", Value: m.Load},
	}, func(f live.Fact) bool { return f.Value == "" })
	return append(list, serverFacts(r.Servers)...)
}

func serverFacts(all map[string]servers.Info) []live.Fact {
	list := make([]live.Fact, 0, len(all))
	for _, backend := range slices.Sorted(maps.Keys(all)) {
		info := all[backend]
		list = append(list, live.Fact{Name: called(backend), Chinese: map[string]string{"database": "数据库", "balancer": "负载均衡"}[backend], Value: fmt.Sprintf("%s (%s)", info, info.Started)})
	}
	return list
}

// Commit is short, but for what is said beside it.
func Commit(full string) string {
	id, rest, _ := strings.Cut(full, " ")
	if len(id) > 12 {
		id = id[:12]
	}
	return strings.TrimSpace(id + " " + rest)
}

// called is a backend as its makers write it.
func called(backend string) string {
	switch backend {
	case "zookeeper":
		return "ZooKeeper"
	case "etcd", "":
		return backend
	default:
		return strings.ToUpper(backend[:1]) + backend[1:]
	}
}

func figures(numbers map[string]float64) []live.Fact {
	list := make([]live.Fact, 0, len(numbers))
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		label, value := Figure(name, numbers[name])
		chinese, _, _ := strings.Cut(checker.FigureInChinese(name), "（")
		list = append(list, live.Fact{Name: label, Chinese: chinese, Value: value})
	}
	return list
}

func state(p experiments.PartResult) string {
	switch {
	case p.NotRun != "":
		return "not run"
	case p.Finding.Holds:
		return "as expected"
	default:
		return "not as expected"
	}
}
