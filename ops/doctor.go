package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/migrate"
)

// A Finding is something that is wrong, or soon will be.
type Finding struct {
	Check string // its name, for Limits.Skip
	What  string // was found
	Why   string // it matters
	Fix   string
}

// A Diagnosis is the answer of [Diagnose].
type Diagnosis struct {
	Findings  []Finding
	Unchecked []Unchecked
	Checked   []string // the names of the checks that were made

	// StandStill counts, by [Stale.Class], what waits until somebody decides or something notices: no finding, but see [Stales].
	StandStill map[string]int
}

// Unchecked is a check that could not be made.
type Unchecked struct{ Check, Why string }

// Limits say from when on something is a finding.
type Limits struct {
	// Transaction is how long a transaction may be open. Default 5 min. Vacuum removes nothing that died since it began.
	Transaction time.Duration
	// Waiting is how long work may be due before somebody takes it. Default 5 min.
	Waiting time.Duration
	// DeadRows is how many dead rows a table may have beyond thrice those at which autovacuum should have begun. Default 100,000.
	DeadRows int64
	// Overdue is how long rows whose memory is over may stay, and jobs may be due in a queue that was paused. Default 7 days.
	Overdue time.Duration
	// Skip are checks that are not made.
	Skip []string
}

func (l Limits) complete() Limits {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&l.Transaction, 5*time.Minute)
	set(&l.Waiting, 5*time.Minute)
	set(&l.Overdue, 7*24*time.Hour)
	if l.DeadRows == 0 {
		l.DeadRows = 100_000
	}
	return l
}

// A check looks for one kind of trouble.
type check struct {
	name string
	look func(ctx context.Context, db DB, l Limits) ([]Finding, error)
}

// checks are made in this order.
var checks = []check{
	{"contract", checkContract},
	{"durability", checkDurability},
	{"replication", checkReplication},
	{"pooler", checkPooler},
	{"snapshots", checkSnapshots},
	{"prepared", checkPrepared},
	{"vacuum", checkVacuum},
	{"indexes", checkIndexes},
	{"collations", checkCollations},
	{"path", checkPath},
	{"workers", checkWorkers},
	{"handlers", checkHandlers},
	{"waiting", checkWaiting},
	{"paused", checkPaused},
	{"schedules", checkSchedules},
	{"crashes", checkCrashes},
	{"retention", checkRetention},
	{"redelivery", checkRedelivery},
}

// Checks returns the names of all checks.
func Checks() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// Diagnose looks for what makes trouble in production: in the server, the schema and the rows. Give it a connection, not a pool; it
// changes nothing. The login needs pawl_reader, and pg_monitor to see what other logins hold open. Some checks read the whole of
// pawl.job. What handlers take, and for how long consumers remember, it knows of those that report it, as this build's do.
//
// Errors: [pawl.ErrArgumentInvalid] for a name in Skip; those of the connection.
func Diagnose(ctx context.Context, db DB, l Limits) (d Diagnosis, err error) {
	for _, name := range l.Skip {
		if !slices.Contains(Checks(), name) {
			return d, &pawl.Error{Op: "doctor", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("there is no check %q", name),
				Hint: "known: " + strings.Join(Checks(), ", ")}
		}
	}
	l = l.complete()
	for _, c := range checks {
		if slices.Contains(l.Skip, c.name) {
			continue
		}
		found, err := c.look(ctx, db, l)
		if code := pawl.CodeOf(err); code == "42501" {
			d.Unchecked = append(d.Unchecked, Unchecked{c.name, err.Error()})
			continue
		}
		if err != nil {
			return d, pawl.Wrap("doctor."+c.name, err)
		}
		d.Checked = append(d.Checked, c.name)
		for _, f := range found {
			f.Check = c.name
			d.Findings = append(d.Findings, f)
		}
		if c.name == "contract" && len(found) > 0 {
			d.Unchecked = append(d.Unchecked, Unchecked{"all others", "the schema is not that of this build"})
			return d, nil
		}
	}
	if !slices.Contains(l.Skip, "snapshots") {
		d.Unchecked = append(d.Unchecked, hidden(ctx, db)...)
	}
	stale, err := Stales(ctx, db, "", nil)
	if pawl.CodeOf(err) == "42501" {
		d.Unchecked = append(d.Unchecked, Unchecked{"what stands still", err.Error()})
		return d, nil
	}
	d.StandStill = map[string]int{}
	for _, s := range stale {
		d.StandStill[s.Class]++
	}
	return d, err
}

// hidden says that other logins' transactions cannot be seen.
func hidden(ctx context.Context, db DB) []Unchecked {
	var sees bool
	err := db.QueryRow(ctx, "select pg_catalog.pg_has_role('pg_read_all_stats', 'usage')").Scan(&sees)
	if err != nil || sees {
		return nil
	}
	return []Unchecked{{"snapshots", "of other logins: grant pg_monitor to this one"}}
}

func checkContract(ctx context.Context, db DB, _ Limits) ([]Finding, error) {
	err := migrate.Check(ctx, db)
	var p *pawl.Error
	if !errors.Is(err, pawl.ErrSchemaMismatch) || !errors.As(err, &p) {
		return nil, err
	}
	return []Finding{{What: p.Err.Error(), Why: "workers and doors of this build refuse to start", Fix: p.Hint}}, nil
}

// findings makes one finding of each row that a statement returns: what, and what its fix is about.
func findings(ctx context.Context, db DB, of func(what, about string) Finding, statement string, args ...any) (all []Finding, err error) {
	return contract.Look(ctx, db, "doctor", statement, args, func(row pgx.CollectableRow) (Finding, error) {
		var what, about string
		err := row.Scan(&what, &about)
		return of(what, about), err
	})
}
