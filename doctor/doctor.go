// Package doctor checks the server, the schema and the rows for common production problems. Use it
// in a check of your own; the command `pawl doctor` prints its findings, and the dashboard shows
// them.
//
//	conn, err := pgx.Connect(ctx, url) // a login with the rights of pawl_reader
//	if err != nil {
//		return err
//	}
//	defer conn.Close(ctx)
//	d, err := doctor.Diagnose(ctx, conn, doctor.Limits{})
//	if err != nil {
//		return err
//	}
//	for _, f := range d.Findings {
//		fmt.Println(f.What, f.Why, f.Fix)
//	}
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/migrate"
)

// A Finding is a problem that exists or will soon.
type Finding struct {
	Check string `json:"check"`         // name of the check, for Limits.Skip
	What  string `json:"what,omitzero"` // the problem; empty: the check could not run
	// its consequence, or the reason why the check could not run
	Why string `json:"why"`
	Fix string `json:"fix,omitzero"`
}

// A Diagnosis is the result of [Diagnose].
type Diagnosis struct {
	Findings  []Finding `json:"findings"`
	Unchecked []Finding `json:"unchecked"` // checks that could not run, and why
	Checked   []string  `json:"checked"`   // names of the checks that ran

	// StandStill counts stalled work by class: work that waits for an operator or for a worker to
	// notice. It is not a finding; see [github.com/pawl-go/pawl/ops.Stale.Class] and
	// [github.com/pawl-go/pawl/ops.Stales]. It is nil if the login may not count.
	StandStill map[string]int `json:"stand_still"`
}

// Limits are the thresholds of findings.
type Limits struct {
	// Transaction is how long a transaction may be open. Default 5 min. Vacuum removes no row that
	// died after it began.
	Transaction time.Duration
	// Waiting is how long work may be due before a worker takes it. Default 5 min.
	Waiting time.Duration
	// DeadRows is how many dead rows a table may have beyond three times autovacuum's threshold.
	// Default 100,000.
	DeadRows int64
	// Overdue is how long expired rows may stay, and how long jobs may be due in a paused queue.
	// Default 7 days.
	Overdue time.Duration
	// Skip lists checks that do not run, by the names that [Checks] returns. Default none.
	Skip []string
}

func (l Limits) complete() Limits {
	l.Transaction = cmp.Or(l.Transaction, 5*time.Minute)
	l.Waiting = cmp.Or(l.Waiting, 5*time.Minute)
	l.Overdue = cmp.Or(l.Overdue, 7*24*time.Hour)
	l.DeadRows = cmp.Or(l.DeadRows, 100_000)
	return l
}

type check struct {
	name string
	// look finds what no question does; may be nil
	look func(ctx context.Context, db pawl.DB) ([]Finding, error)
}

// checks run in this order.
var checks = []check{
	{"engine", checkEngine}, {"contract", checkContract}, {"durability", nil}, {"timeouts", nil}, {"replication", nil}, {"standbys", nil},
	{"pooler", checkPooler}, {"snapshots", nil}, {"prepared", nil}, {"vacuum", nil}, {"indexes", nil}, {"collations", nil}, {"path", nil},
	{"row_security", nil}, {"workers", nil}, {"wakeups", nil}, {"handlers", nil}, {"waiting", nil}, {"paused", nil}, {"schedules", nil},
	{"crashes", nil}, {"rows", nil}, {"retention", nil}, {"redelivery", nil}, {"keys", checkKeys},
}

// Checks returns the names of all checks.
func Checks() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// Diagnose checks the server, the schema and the rows for common production problems. Give it a
// connection, not a pool; it changes nothing. The login needs pawl_reader, and pg_monitor to see
// transactions of other logins. Some checks read all of pawl.job. Durations of handlers and memory
// windows of consumers are known only for programs that report them, as this build's do.
//
// Errors: [pawl.ErrArgumentInvalid] for an unknown name in Skip or a negative threshold; errors of
// the connection.
func Diagnose(ctx context.Context, db pawl.DB, l Limits) (d Diagnosis, err error) {
	for _, name := range l.Skip {
		if !slices.Contains(Checks(), name) {
			return d, &pawl.Error{Op: "doctor", Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("there is no check %q", name),
				Hint: "known: " + strings.Join(Checks(), ", ")}
		}
	}
	if err := ranges.NotNegative(l); err != nil {
		return d, &pawl.Error{Op: "doctor", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	l = l.complete()
	d = Diagnosis{Findings: []Finding{}, Unchecked: []Finding{}, Checked: []string{}}
	for _, c := range checks {
		if slices.Contains(l.Skip, c.name) {
			continue
		}
		found, err := c.findings(ctx, db, l)
		if code := pawl.CodeOf(err); code == "42501" {
			d.Unchecked = append(d.Unchecked, Finding{Check: c.name, Why: err.Error()})
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
		if without := others(c.name, found); without != "" {
			d.Unchecked = append(d.Unchecked, Finding{Check: "all others", Why: without})
			return d, nil
		}
	}
	if !slices.Contains(l.Skip, "snapshots") {
		d.Unchecked = append(d.Unchecked, hidden(ctx, db)...)
	}
	stale, err := catalog.StaleCounts[struct {
		Class string `json:"class"`
		N     int    `json:"n"`
	}](ctx, db)
	if pawl.CodeOf(err) == "42501" {
		d.Unchecked = append(d.Unchecked, Finding{Check: "what stands still", Why: err.Error()})
		return d, nil
	}
	d.StandStill = map[string]int{}
	for _, s := range stale {
		d.StandStill[s.Class] = s.N
	}
	return d, err
}

// others returns the reason why no other check can run after this one, or "".
func others(check string, found []Finding) string {
	switch {
	case len(found) == 0:
	case check == "contract":
		return "the schema does not match this build"
	case check == "engine" && found[0].Why == notOurs:
		return "the server is not PostgreSQL"
	case check == "engine" && found[0].Why == notAll:
		return "the database cannot store every text"
	}
	return ""
}

// hidden reports that transactions of other logins are not visible.
func hidden(ctx context.Context, db pawl.DB) []Finding {
	var sees bool
	err := db.QueryRow(ctx, "select pg_catalog.pg_has_role('pg_read_all_stats', 'usage')").Scan(&sees)
	if err != nil || sees {
		return nil
	}
	return []Finding{{Check: "snapshots", Why: "of other logins: grant pg_monitor to this one"}}
}

const notOurs = "missing features fail late or not at all: without working locks, two workers get one job, and a message has two effects"

const notAll = "a key, a header or an error that it cannot store fails each time, so such a message never ends"

func checkEngine(ctx context.Context, db pawl.DB) ([]Finding, error) {
	err := engine.Refuse(ctx, db)
	var p *pawl.Error
	if errors.Is(err, engine.ErrEncoding) && errors.As(err, &p) {
		return []Finding{{What: p.Err.Error(), Why: notAll, Fix: p.Hint}}, nil
	}
	if errors.As(err, &p) && p.Code == "0A000" {
		return []Finding{{What: p.Err.Error(), Why: notOurs, Fix: p.Hint}}, nil
	}
	if err != nil {
		return nil, err
	}
	major, err := engine.Major(ctx, db)
	if err != nil || major >= engine.Tested {
		return nil, err
	}
	return []Finding{{What: fmt.Sprintf("this is PostgreSQL %d", major), Why: fmt.Sprintf("Pawl is tested from PostgreSQL %d on, and that version gets no fixes any more", engine.Tested),
		Fix: fmt.Sprintf("upgrade the server to %d or newer", engine.Tested)}}, nil
}

func checkContract(ctx context.Context, db pawl.DB) ([]Finding, error) {
	err := migrate.Check(ctx, db)
	var p *pawl.Error
	if !errors.Is(err, pawl.ErrSchemaMismatch) || !errors.As(err, &p) {
		return nil, err
	}
	return []Finding{{What: p.Err.Error(), Why: "workers and consumers of this build refuse to start", Fix: p.Hint}}, nil
}

// findings returns what the check finds, first by its questions.
func (c check) findings(ctx context.Context, db pawl.DB, l Limits) (all []Finding, err error) {
	for _, q := range questions {
		if q.check != c.name {
			continue
		}
		found, err := q.ask(ctx, db, l)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if c.look == nil {
		return all, nil
	}
	found, err := c.look(ctx, db)
	return append(all, found...), err
}

func (q question) ask(ctx context.Context, db pawl.DB, l Limits) (all []Finding, err error) {
	if q.since > 0 {
		var version int
		if err := db.QueryRow(ctx, "select pg_catalog.current_setting('server_version_num')::int").Scan(&version); err != nil || version < q.since {
			return nil, err
		}
	}
	var args []any
	if q.limit != nil {
		args = append(args, q.limit(l))
	}
	facts, err := catalog.Facts(ctx, db, q.query, args...)
	for _, fact := range facts {
		found, err := q.word(fact)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, err
}

// word words a fact as a finding.
func (q question) word(fact map[string]any) (f Finding, err error) {
	i := slices.IndexFunc(q.words, func(w words) bool { return w.scope == "" || w.scope == fact["scope"] })
	if i < 0 {
		return f, &pawl.Error{Op: "doctor", Code: pawl.CodeUnknownState, Err: fmt.Errorf("%s: scope %v", q.query, fact["scope"])}
	}
	w := q.words[i]
	what, wrong := fill(w.what, fact)
	fix, wrong2 := fill(w.fix, fact)
	return Finding{What: what, Why: cmp.Or(w.why, q.why), Fix: fix}, errors.Join(wrong, wrong2)
}

func fill(text string, fact map[string]any) (string, error) {
	t, err := template.New("").Funcs(forms).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, fact)
	return out.String(), err
}

// forms are the functions of the templates.
var forms = template.FuncMap{
	"plural":  text.Plural[int64],
	"word":    text.ShellWord,
	"literal": func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" },
	"second":  second,
	"seconds": seconds,
}

func second(at string) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return at // infinity
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func seconds(n any) (time.Duration, error) {
	switch n := n.(type) {
	case int64:
		return time.Duration(n) * time.Second, nil
	case float64:
		return time.Duration(n * float64(time.Second)).Round(time.Millisecond), nil
	}
	return 0, fmt.Errorf("%v is no number", n)
}
