package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/pawl-go/pawl/cmd/pawl/internal/broker"
	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

func printReport(w io.Writer, r demo.Report) error {
	kind, _ := broker.Named(r.Broker)
	other := r.Altered + r.Torn + r.Unexpected
	rows := [][]string{
		{"orders sent", count(r.Intents), "intents: each must take effect once"},
		{"deliveries", count(r.Deliveries), "messages that " + kind.Title + " handed out"},
		{"deliveries sent", count(r.Deliveries), "webhooks, each until it was answered 200"},
		{"effects", count(r.Effects), "order rows in PostgreSQL"},
		{"charges", count(r.Charged), fmt.Sprintf("really made by the bank, in %d requests", r.ChargeRequests)},
		{"emails", count(r.Mailed), fmt.Sprintf("really sent by the mail server, in %d requests", r.MailRequests)},
		{"events", count(r.Shipped), "rows behind the outbox and a queue"},
		{"shipments", count(r.Shipped), "rows behind the second queue"},
		{"unknown", count(r.Unknown), "mails in doubt, not sent again before the server was asked"},
		{"duplicates absorbed", count(r.DuplicatesAbsorbed), "deliveries recognised as seen"},
		{"failures retried", count(r.Retried), "handler errors, stored and tried again"},
		{"dead letters", count(r.DeadLetters), "kept with their payload"},
		{"workers killed", count(r.Kills), whereKilled(r.KilledAt)},
		{"doubled", count(r.Doubled), mark(r.Doubled)},
		{"lost", count(r.Lost), mark(r.Lost)},
		{"never settled", count(r.Unsettled), mark(r.Unsettled)},
		{"altered, torn, unexpected", count(other), mark(other)},
	}
	hidden := []string{"deliveries sent", "charges", "emails", "events", "unknown"}
	switch {
	case r.Payments:
		rows[0][0], hidden = "payments", []string{"deliveries", "shipments"}
	case !r.Pipeline:
		hidden = append(hidden, "shipments")
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return slices.Contains(hidden, row[0]) })
	if err := printTable(w, []string{"what", fmt.Sprintf("%*s", countWidth, "count"), "meaning"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%.1f s, %.0f effects/s, seed %d\n", r.Seconds, r.PerSecond, r.Seed)
	for _, v := range r.Violations {
		fmt.Fprintln(w, "violation:", v)
	}
	if r.Schema != "" {
		fmt.Fprintf(w, "kept: schema %s, and the inbox rows of consumer %[1]s\n", r.Schema)
	}
	printDirectory(w, r.Directory)
	return err
}

func printDirectory(w io.Writer, directory string) {
	if directory != "" {
		fmt.Fprintf(w, "look: pawl dev postgres --dir %s\n", directory)
	}
}

func printLease(w io.Writer, r demo.LeaseReport) error {
	err := printTable(w, []string{"what", fmt.Sprintf("%*s", countWidth, "count"), "meaning"}, [][]string{
		{"letters", count(r.Letters), "jobs: each is one mail and one row"},
		{"mails", count(r.Mails), "really sent by the mail server"},
		{"rows", count(r.Rows), "in PostgreSQL"},
		{"stale writes refused", count(r.Refused), "by the worker that had been frozen"},
		{"doubled", count(r.Doubled), mark(r.Doubled)},
		{"lost", count(r.Lost), mark(r.Lost)},
	})
	fmt.Fprintf(w, "\ntaken over %.1f s after the SIGKILL and %.1f s after the SIGSTOP, with a lease of %.0f s\n", r.Killed, r.Frozen, r.Lease)
	if r.Schema != "" {
		fmt.Fprintf(w, "kept: schema %s\n", r.Schema)
	}
	printDirectory(w, r.Directory)
	return err
}

// countWidth right-aligns the numbers of the table.
const countWidth = 9

func count[T int | int64](n T) string { return fmt.Sprintf("%*d", countWidth, n) }

func mark(n int) string {
	if n == 0 {
		return "ok"
	}
	return "BROKEN"
}

// whereKilled summarises the kills; --json lists them.
func whereKilled(kills []demo.Kill) string {
	points := map[string]bool{}
	random := 0
	for _, k := range kills {
		if k.Point == demo.Randomly {
			random++
			continue
		}
		points[k.Point] = true
	}
	return fmt.Sprintf("SIGKILL: %d at random, %d at %d named points", random, len(kills)-random, len(points))
}
