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

const epilogue = `
## Where a bar is met narrowly, or not

Two cores that others use as well move every rate here by a third from run to run; processor time for a job moves less. By profiles of
both sides:

- **Enqueue, one job a call.** The bare insert into ` + "`pawl.job`" + `, with its index, is the line "pgbench"; the function adds 20 µs of the
  server's time to its 55, and the client takes 24 µs, nearly all of it pgx's. What was saved, and how it was measured:
  [0016](decisions/0016-cheap-statements.md).
- **Jobs that do nothing.** Each claim and each finish is a durable transaction, so that the rate follows the disk; a quarter of the
  processors is idle. In the client 14 % is the decoding of JSON, 20 % garbage collection, 13 % the stacks of new goroutines, 13 % system calls.
  Alone, at 5dd4266, it was 1.66× and 2.03×.
- **An idle snapshot held.** The rate at the end is that of the last seconds of one round; alone, at 5dd4266, it was 109 % of the
  clean rate. Five minutes of half load hold the offered rate ([0014](decisions/0014-watermark.md)).
- **Jobs that write one row, each in a transaction.** Two messages a job, and a claim that must be durable before a handler starts:
  [0018](decisions/0018-one-message.md) has the profile, and what was tried. In batches the bar is met with room.
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
	out.WriteString(epilogue)
	return out.String()
}
