package report_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/report"
)

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for _, c := range []struct {
		name         string
		value        float64
		label, words string
	}{
		{"oversold_units", 1412, "oversold", "1,412 units"},
		{"oversold_units", 1, "oversold", "1 unit"},
		{"longest_wait_ms", 2140, "longest wait", "2.14 s"},
		{"longest_wait_ms", 0.25, "longest wait", "250 µs"},
		{"longest_wait_ms", 0, "longest wait", "0 ms"},
		{"wakeups_per_release", 49.26, "wakeups per release", "49.3"},
		{"sold_per_second", 1234.4, "sold", "1,234/s"},
		{"mutex_sales_per_s", 604.2, "mutex sales", "604/s"},
		{"deadlocked_seconds", 75, "deadlocked", "1 min 15 s"},
		{"refused_percent", 12.5, "refused", "12.5 %"},
		{"lost_units", -3, "lost", "-3 units"},
		{"tiny", 0.00042, "tiny", "0.00042"},
	} {
		if label, value := report.Figure(c.name, c.value); label != c.label || value != c.words {
			t.Errorf("%s of %v is %q %q, want %q %q", c.name, c.value, label, value, c.label, c.words)
		}
	}
}

func TestDurationsAreInTheUnitThatFits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 900 * time.Nanosecond: "0.9 µs", 1500 * time.Microsecond: "1.5 ms", 999 * time.Millisecond: "999 ms",
		12340 * time.Millisecond: "12.3 s", 59*time.Second + 999*time.Millisecond: "60 s", 432 * time.Second: "7 min 12 s",
	} {
		if got := report.Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestSentencesBeginAndEndAsSuch(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "every purchase is accepted": "Every purchase is accepted.", "Who asks?": "Who asks?", "éclat": "Éclat.", "5,000 are sold.": "5,000 are sold.",
	} {
		if got := report.Sentence(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
