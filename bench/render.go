package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// A publication is the runs that docs/performance.md is rendered from.
type publication struct {
	options // to print the command that renders the page
	main    Report
	second  *Report // nil if absent
}

// publish loads the runs and refuses those that do not belong together.
func publish(o options) (p publication, err error) {
	p.options = o
	if p.main, err = load(o.render); err != nil || o.second == "" {
		return p, err
	}
	second, err := load(o.second)
	if err == nil && second.Settings.Mode != p.main.Settings.Mode {
		err = fmt.Errorf("%s is a %s run and %s a %s one: they do not compare", o.render, p.main.Settings.Mode, o.second, second.Settings.Mode)
	}
	p.second = &second
	return p, err
}

// render prints the page and writes its chart if there is a directory for it.
func render(o options) error {
	p, err := publish(o)
	if err != nil {
		return err
	}
	if d := rateChart(p.main); d != nil && o.charts != "" {
		err = errors.Join(os.MkdirAll(o.charts, 0o755), os.WriteFile(filepath.Join(o.charts, d.name), []byte(d.svg()), 0o644))
	}
	if err == nil {
		fmt.Print(p.page())
	}
	return err
}

// command returns the command that renders the page at the root of the repository.
func (p publication) command() string {
	text := "go run ./bench -render bench/results/" + filepath.Base(p.render)
	if p.options.second != "" {
		text += " -second bench/results/" + filepath.Base(p.options.second)
	}
	if p.charts != "" {
		text += " -charts docs/images"
	}
	return text + " > docs/performance.md"
}

const method = `## How it was measured

Each contender gets a fresh database on one durable private server, and the contenders take turns in one run. A rate is the median of the
rounds, with the extremes beside it. River runs with the settings of its own benchmark: 2,000 workers, a fetch every 2 ms. "loop" is a loop
written by hand with FOR UPDATE SKIP LOCKED. It has no retries and no dead letters, and no lease unless its line says so. "pgbench" is the
floor: the SQL alone, sent by a C client. "CPU × River" compares the processor time of a job, client and server together. If other
processes use the machine, it changes less than a rate.

`

// page returns docs/performance.md.
func (p publication) page() string {
	var out strings.Builder
	out.WriteString("# Performance\n\n" + takeaway(p.main) + "\n\n")
	if d := rateChart(p.main); d != nil && p.charts != "" {
		fmt.Fprintf(&out, "![%s](images/%s)\n\n", d.title, d.name)
	}
	out.WriteString("The code of each row is in [bench](../bench). To measure your machine, run `go run ./bench -quick`. This page is generated, so do not edit it:\n\n```sh\n" +
		p.command() + "\n```\n\n")
	out.WriteString(p.bars() + method + settingsBlock(p.main))
	if p.second != nil {
		out.WriteString("\n" + compared(p.main, *p.second) + "\n\n" + settingsBlock(*p.second))
	}
	for _, row := range p.main.Rows {
		fmt.Fprintf(&out, "\n## %s\n\n%s", row.Title, rowTable(row)+p.explanations(row))
	}
	return out.String()
}

func settingsBlock(r Report) string {
	text := "```text\n" + settingsText(r.Settings) + "\n```\n"
	if calm := calmText(r.Settings); calm != "" {
		text += "\n" + calm + "\n"
	}
	return text
}

// bars returns the table of all bars with the figures of both runs.
func (p publication) bars() string {
	all := verdicts(p.main)
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("## Bars\n\n")
	heads, line := "| row | who | bar | reached |", "|---|---|---|---:|"
	if p.second != nil {
		heads, line = heads+" second run |", line+"---:|"
	}
	out.WriteString(heads + " |\n" + line + "---|\n")
	var again []verdict
	for _, v := range all {
		fmt.Fprintf(&out, "| [%s](#%s) | %s | %s | %s |", v.row.ID, anchor(v.row.Title), v.bar.Who, v.bar, v.reached())
		word := v.String()
		if p.second != nil {
			w := v.in(*p.second)
			again = append(again, w)
			fmt.Fprintf(&out, " %s |", w.reached())
			if v.met() != w.met() {
				word += ", then " + w.String()
			}
		}
		fmt.Fprintf(&out, " %s |\n", word)
	}
	out.WriteString("\n" + metOf(all) + ".")
	if p.second != nil {
		out.WriteString(" In the second run, " + metOf(again) + ".")
	}
	out.WriteString("\n\n")
	return out.String()
}

// in returns the verdict on the same bar in another run.
func (v verdict) in(r Report) verdict {
	row, ok := r.row(v.row.ID)
	if !ok {
		return verdict{row: v.row, bar: v.bar}
	}
	got, ok := row.reached(v.bar)
	return verdict{row, v.bar, got, ok}
}

// compared describes how far apart two runs are.
func compared(a, b Report) string {
	var apart []float64
	most, where := 0.0, ""
	for _, row := range a.Rows {
		other, _ := b.row(row.ID)
		for _, l := range row.Lines {
			m, found := other.line(l.Who)
			change := math.Abs(m.median()/l.median() - 1)
			if !found || math.IsNaN(change) || math.IsInf(change, 0) {
				continue
			}
			if apart = append(apart, change); change > most {
				most, where = change, fmt.Sprintf(" (%s, %s)", row.ID, l.Who)
			}
		}
	}
	if len(apart) == 0 {
		return "The second run shares no line with the first."
	}
	return fmt.Sprintf("The tables show the first run. A figure of the second run differs from it by %s in the median and %s at most%s.",
		percent(median(apart)), percent(most), where)
}

// explanations returns the text below a row with a bar that one of the runs misses.
func (p publication) explanations(row Row) string {
	text := ""
	told := map[string]bool{}
	for _, v := range row.verdicts() {
		why, ok := v.explanation()
		if !ok && p.second != nil {
			why, ok = v.in(*p.second).explanation()
		}
		if ok && !told[v.bar.Who] {
			text += fmt.Sprintf("\n**Why %s misses its bar (%s):** %s\n", v.bar.Who, v.bar, why)
		}
		told[v.bar.Who] = told[v.bar.Who] || ok
	}
	return text
}

// rowTable returns the table of a row.
func rowTable(row Row) string {
	var out strings.Builder
	escape := strings.NewReplacer("|", "\\|")
	h := heads(row)
	align := "|---|" + strings.Repeat("---:|", len(h)-1)
	out.WriteString("| " + strings.Join(append(h, "how, and what is to be reached"), " | ") + " |\n" + align + "---|\n")
	for _, l := range row.Lines {
		out.WriteString("| " + strings.Join(append(cells(row, l), escape.Replace(note(row, l))), " | ") + " |\n")
	}
	return out.String()
}
