package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

// startLive runs stocklab live, and returns the address that it prints.
func startLive(t *testing.T, from string) string {
	t.Helper()
	live := exec.Command(os.Args[0], "live", "--servers="+from)
	live.Env = cmdtest.Environment()
	said := &cmdtest.Buffer{}
	live.Stderr = said
	out, err := live.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := live.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := live.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := live.Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, said.Text())
		}
	})
	lines := bufio.NewScanner(out) // it ends with the process
	if !lines.Scan() {
		t.Fatalf("it printed nothing:\n%s", said.Text())
	}
	_, url, ok := strings.Cut(lines.Text(), "stocklab live: ")
	if !ok {
		t.Fatalf("it printed %q", lines.Text())
	}
	return url
}

const (
	// within is how long a condition of the page may take on a machine that is busy.
	within = 90 * time.Second
	// shown is how long a test may use its browser.
	shown = 8 * time.Minute
)

// set chooses in the form of the page.
func set(t *testing.T, b *browser.Browser, field string, value any) {
	t.Helper()
	script := fmt.Sprintf(`((e, v) => { if (e.type === 'checkbox') e.checked = v; else e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); return true; })(document.querySelector('#form [name=%s]'), %#v)`, field, value)
	browser.Evaluate[bool](t, b, script)
}

func click(t *testing.T, b *browser.Browser, selector string) {
	t.Helper()
	b.Until(t, within, fmt.Sprintf("(e => Boolean(e && !e.hidden && !e.disabled))(document.querySelector(%q))", selector))
	browser.Evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).click(), true)", selector))
}

// figure is a number of the page, as it is shown.
func figure(id string) string {
	return fmt.Sprintf("Number(document.getElementById(%q).textContent.replace(/\\D/g, ''))", id)
}

func TestAPageShowsASaleThatOversells(t *testing.T) {
	url := startLive(t, "auto")
	b := browser.Open(t, shown)
	b.Show(t, url, 1400, 2600, "light")
	b.Until(t, within, "document.getElementById('link').textContent === 'live'")
	b.Keep(t, "body", "live-idle")
	set(t, b, "stock", 300)
	click(t, b, "#start")
	b.Until(t, within, figure("n-over")+" > 0")
	b.Keep(t, "body", "live-naive")
	set(t, b, "strategy", "sql-conditional")
	click(t, b, "#switch")
	b.Until(t, within, "document.getElementById('n-phase').textContent === 'over' && !document.getElementById('verdict').hidden")
	b.Keep(t, "body", "live-verdict")
	if words := browser.Evaluate[string](t, b, "document.getElementById('verdict-words').textContent"); !strings.Contains(words, "naive, then sql-conditional: oversold by") {
		t.Errorf("the verdict is %q", words)
	}
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
}
