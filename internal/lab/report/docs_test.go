package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/must"
)

// registered are the experiments of a report as the registry would have them.
func registered(r *experiments.Report) []experiments.Experiment {
	list := make([]experiments.Experiment, 0, len(r.Experiments))
	for _, e := range r.Experiments {
		one := experiments.Experiment{Number: e.Number, Name: e.Name, Title: e.Title, Claim: e.Claim, Source: e.Source, Fix: e.Fix}
		for _, p := range e.Parts {
			one.Parts = append(one.Parts, experiments.Part{Name: p.Name, Does: p.Does, Expect: p.Expect, Remedy: p.Remedy, Pictures: p.Pictures})
		}
		list = append(list, one)
	}
	return list
}

func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	must.Do(t, err)
	return string(content)
}

func wants(t *testing.T, where, content string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(content, want) {
			t.Errorf("%s lacks %q:\n%s", where, want, content)
		}
	}
}

func TestThereIsAPageAnExperimentWithTheFiguresOfARun(t *testing.T) {
	run, r := fakeRun(t)
	folder := t.TempDir()
	if keep := os.Getenv("DOCS"); keep != "" {
		folder = keep
	}
	old := filepath.Join(folder, "03-no-longer.md")
	kept := filepath.Join(folder, "servers.md")
	for _, path := range []string{old, kept} {
		must.Do(t, os.WriteFile(path, []byte("text"), 0o644))
	}
	all := registered(r)
	all[0].Claim = "What the registry says now | and not then."
	must.Do(t, report.Docs(folder, run, all))
	index := text(t, filepath.Join(folder, "README.md"))
	wants(t, "the index", index, "what is changed by hand is lost", "[An expiry shorter than the work](07-work-outlasts-ttl.md)",
		`What the registry says now \| and not then.`, "✗ not reproduced", "3 reproduced, 1 not reproduced, 1 not run", "MariaDB 10.11.14 (local)")
	wants(t, "the page", text(t, filepath.Join(folder, "07-work-outlasts-ttl.md")), "what is changed by hand is lost", "stocklab lab run work-outlasts-ttl",
		"| oversold | 4,000 units |", "## What happens\n\n### naive (failure)\n\n1. ", "## What helps\n\n### with-lock (remedy)\n\n1. ",
		"The code: [`redis-setnx-ttl`](../../internal/lock/redis).", "![naive, Who held the lock", "](07-work-outlasts-ttl.svg)",
		"✗ [setnx_ttl.go](../../internal/lock/redis), [weak.go]", "✓ [acquire.lua](../../internal/lock/redis/lua)", "[简体中文](zh/01-10.md#work-outlasts-ttl) · previous: [1. ", "](01-oversell.md) · next: [8. ", "curl -X POST")
	if drawn, err := filepath.Glob(filepath.Join(folder, "07-*.svg")); err != nil || len(drawn) != 1 {
		t.Errorf("the page has pictures %v, want one (%v)", drawn, err)
	}
	wants(t, "the picture", text(t, filepath.Join(folder, "07-work-outlasts-ttl.svg")), `xmlns="http://www.w3.org/2000/svg"`, "prefers-color-scheme: dark",
		"held by two or more at once", "2. 100 ms: replica-1 paused (SIGSTOP)")
	wants(t, "the README's picture", text(t, filepath.Join(folder, "oversell.svg")), "5,000 sold, the row says 0 left", "1,000 sold, the row says 0 left")
	wants(t, "the page of what was not run", text(t, filepath.Join(folder, "22-innodb-matrix.md")), "– not run", "SQLite has none")
	if _, err := os.Stat(old); err == nil {
		t.Error("the page of an experiment that is no more is still there")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("a page that is not ours was removed")
	}
}

// What the catalogue has in Chinese is Chinese, and the rest stays English.
func TestPagesInChineseHaveThePicturesOfTheEnglishOnes(t *testing.T) {
	run, r := fakeRun(t)
	title := experiments.Chinese("work-outlasts-ttl").Title
	folder := t.TempDir()
	must.Do(t, report.Docs(folder, run, registered(r)))
	wants(t, "the page", text(t, filepath.Join(folder, "zh", "01-10.md")), "## work-outlasts-ttl\n\n**7. "+title+"**（[English，附数据](../07-work-outlasts-ttl.md)）",
		"### naive（问题）\n\n1. 50 个客户端", "1. 50 buyers", "](../07-work-outlasts-ttl.svg)", "对策：", "已复现", "✓ [acquire.lua](../../../internal/lock/redis/lua)")
	wants(t, "the index", text(t, filepath.Join(folder, "zh", "README.md")), "["+title+"](01-10.md#work-outlasts-ttl)", "未运行", "- 开始时间：")
	if drawn, err := filepath.Glob(filepath.Join(folder, "zh", "*.svg")); err != nil || len(drawn) != 0 {
		t.Errorf("pictures were drawn again: %v (%v)", drawn, err)
	}
}
