// Command gen writes docs/reference/metrics.md from the list in package metrics. Run it with go
// generate in package observe.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/pawl-go/pawl/observe/internal/metrics"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("gen: name the file to write")
	}
	if err := os.WriteFile(os.Args[1], page(), 0o644); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

const preface = `# Metrics

Generated from ` + "`observe/internal/metrics/metrics.go`" + `; edit that file and run ` + "`go generate`" + ` in ` + "`observe`" + `.

[prompawl](../guides/observe.md) exports them to Prometheus, otelpawl to OpenTelemetry, where they have the name in the second column.
Kinds, ops and scopes are those of [events](events.md). [Alerts](../operating/alerts.md) has rules.

`

func page() []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	b.WriteString("## Of events\n\nOf one process. Sum them.\n\n")
	all := metrics.Metrics()
	gauges := metrics.Gauges()
	table(&b, all[:len(all)-len(gauges)])
	b.WriteString("\n## Of the database\n\nThe same from every process that reads it. Take the maximum, never the sum.\n\n")
	table(&b, gauges)
	b.WriteString("\n## What they are read from\n\n| read | gauges | how | grows with |\n|---|---|---|---|\n")
	for _, r := range metrics.Reads() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, metricsOf(r.Name), r.How, r.Grows)
	}
	return b.Bytes()
}

func table(b *bytes.Buffer, list []metrics.Metric) {
	b.WriteString("| Prometheus | OpenTelemetry | type | unit | labels | meaning | look out for |\n|---|---|---|---|---|---|---|\n")
	for _, m := range list {
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s | %s | %s |\n",
			m.Name, m.OTel, m.Type, cmp.Or(m.Unit, "–"), "`"+strings.Join(m.Labels, "`, `")+"`", m.Help, cmp.Or(m.Alert, "–"))
	}
}

func metricsOf(read string) string {
	var names []string
	for _, m := range metrics.Gauges() {
		if m.Read == read {
			names = append(names, "`"+m.Name+"`")
		}
	}
	return strings.Join(names, ", ")
}
