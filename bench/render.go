package main

import (
	"fmt"
	"strings"
)

const preface = `# Performance

Generated from a committed run by ` + "`go run ./bench -render FILE > docs/performance.md`" + `; do not edit. What each row does
is in [bench](../bench), whose figures you can have on your machine: ` + "`go run ./bench -quick`" + `.

Each contender gets a fresh database on one durable private server, in turn, in one run. Rates are the median of the rounds;
beside them stand the extremes. River runs with the settings of its own benchmark (2,000 workers, fetch every 2 ms). "loop" is
what one writes by hand with FOR UPDATE SKIP LOCKED: no retries, no dead letters, no lease unless said. "pgbench" is the floor:
the SQL alone, driven by a C client. "CPU × River" compares processor time for a job, client and server together; it moves
less than the rates when others use the machine.

`

// page shows a report as docs/performance.md.
func page(r Report) string {
	var out strings.Builder
	out.WriteString(preface + "```text\n" + settingsText(r.Settings) + "\n```\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&out, "\n## %s\n\n", row.Title)
		h := append(heads(row), "how, and what is to be reached")
		out.WriteString("| " + strings.Join(h, " | ") + " |\n|---|" + strings.Repeat("---:|", len(h)-2) + "---|\n")
		for _, l := range row.Lines {
			c := append(cells(row, l), strings.ReplaceAll(note(row, l), "|", "\\|"))
			out.WriteString("| " + strings.Join(c, " | ") + " |\n")
		}
	}
	return out.String()
}
