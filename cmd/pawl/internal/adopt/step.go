package adopt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/text"
)

// A Result is what a step did and found.
type Result struct {
	Step        string `json:"step"`
	Copied      int64  `json:"copied"`      // keys that were not known before
	Known       int64  `json:"known"`       // keys that were known
	Differ      int64  `json:"differ"`      // keys known with another payload
	Left        int64  `json:"left"`        // rows that Pawl does not know
	Differences int64  `json:"differences"` // records of the shadow that need no answer
	Stored      int64  `json:"stored"`      // stored deliveries that the consumer has not finished
	Next        string `json:"next"`
}

// Run runs a step. It can be killed at any point and run again. say gets the progress.
func (t *Table) Run(ctx context.Context, conn *pgx.Conn, step string, say func(Result)) (Result, error) {
	r := Result{Step: step}
	run := map[string]func(context.Context, *pgx.Conn, *Result, func(Result)) error{
		"shadow": t.runShadow, "backfill": t.runBackfill, "switch": t.runSwitch, "remove": t.runRemove, "back": t.runBack,
	}[step]
	if run == nil {
		return r, refuse("the steps are shadow, backfill, switch, remove and back", "there is no step %s", step)
	}
	return r, run(ctx, conn, &r, say)
}

func (t *Table) runShadow(ctx context.Context, conn *pgx.Conn, r *Result, _ func(Result)) error {
	r.Next = "in the old consumer's transaction, after its insert, add: " + t.Call() +
		" -- message id, key, octets, and 'processed' or 'duplicate_ignored'. Its login needs pawl_app. Wait some days, then run --step " + t.second()
	return t.apply(ctx, conn, t.Shadow())
}

// second is the step after the shadow.
func (t *Table) second() string {
	if t.Payload == nil {
		return "switch"
	}
	return "backfill"
}

func (t *Table) runBackfill(ctx context.Context, conn *pgx.Conn, r *Result, say func(Result)) error {
	if t.Payload == nil {
		return refuse("pass --payload with the column of the message's octets, or go on with --step switch: then the table decides for longer", "without a payload there is no backfill")
	}
	if err := t.after(ctx, conn, "shadow"); err != nil {
		return err
	}
	if err := t.sameKeys(ctx, conn); err != nil {
		return err
	}
	if err := t.apply(ctx, conn, t.Backfill()); err != nil {
		return err
	}
	for pass := 1; ; pass++ {
		busy, err := t.copyAll(ctx, conn, r, say)
		if err != nil {
			return err
		}
		if busy == 0 || pass == passes {
			break
		}
	}
	r.Next = "run --step switch"
	if r.Differ > 0 {
		r.Next = "keys with another payload are dead letters if they come again: see mismatch in docs/guides/adopting.md; then run --step switch"
	}
	if err := t.count(ctx, conn, t.Left(), &r.Left); err != nil || r.Left == 0 {
		return err
	}
	r.Next = "rows are left that have no payload, were being processed, or came from a build without the shadow: deploy the shadow everywhere, then run --step backfill again. " +
		"Those without a payload need the table until they are old; then run --step switch"
	return nil
}

// sameKeys refuses a backfill if the table has none of the keys that the shadow passed. Then the
// column is the broker's id, and copied ids would not be found under the consumer's keys.
func (t *Table) sameKeys(ctx context.Context, conn *pgx.Conn) error {
	readable := "true"
	if is := keyTypes[t.Key.Base].readable; is != "" {
		readable = strings.ReplaceAll(is, "$key", "i.key")
	}
	var passed, known int64
	err := pinned(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "select i.key, coalesce("+readable+", false) from pawl.inbox as i where i.consumer = $1 limit 1000", t.Consumer)
		if err != nil {
			return err
		}
		var key string
		var usable bool
		keys := []string{}
		if _, err := pgx.ForEachRow(rows, []any{&key, &usable}, func() error {
			if passed++; usable {
				keys = append(keys, key)
			}
			return nil
		}); err != nil {
			return err
		}
		return tx.QueryRow(ctx, t.fill("select count(*) from $table as p where $key = any ($1::text[]::$type[])"), keys).Scan(&known)
	})
	if err != nil || passed == 0 || known > 0 {
		return err
	}
	return refuse("if the table has the broker's ids, leave --payload out: then it decides until its rows are too old to come again",
		"none of the %d keys that the inbox has for consumer %s is in %s: the consumer's key is not this column", passed, t.Consumer, t.Key.Name)
}

// passes bounds how often a backfill goes through the table for keys that were being processed.
const passes = 3

// copyAll goes through the table once. It adds to the result what is new in this pass.
func (t *Table) copyAll(ctx context.Context, conn *pgx.Conn, r *Result, say func(Result)) (busy int64, err error) {
	next := t.fill("select b.last, b.copied, b.known, b.differ, b.busy from $backfill($1::text::$type) as b")
	r.Known, r.Differ = 0, 0
	for last := keyTypes[t.Key.Base].least; ; {
		var behind *string
		var copied, known, differ, occupied int64
		if err := one(ctx, conn, next, []any{last}, &behind, &copied, &known, &differ, &occupied); err != nil {
			return busy, err
		}
		if behind == nil {
			return busy, nil
		}
		last, busy = *behind, busy+occupied
		r.Copied, r.Known, r.Differ = r.Copied+copied, r.Known+known, r.Differ+differ
		say(*r)
	}
}

func (t *Table) runSwitch(ctx context.Context, conn *pgx.Conn, r *Result, _ func(Result)) error {
	if err := t.after(ctx, conn, "shadow"); err != nil {
		return err
	}
	var used bool
	if err := one(ctx, conn, "select exists (select from pawl.inbox as i where i.consumer = $1)", []any{t.Consumer}, &used); err != nil {
		return err
	}
	if !used && t.Rows.Read > 0 {
		return refuse("deploy the old build with the line that --step shadow printed", "consumer %s has no row in the inbox: the shadow has not been called", t.Consumer)
	}
	if err := t.judge(ctx, conn, r); err != nil {
		return err
	}
	if err := t.count(ctx, conn, t.Left(), &r.Left); err != nil {
		return err
	}
	r.Next = "deploy one process of the consumer whose handler begins with: " + t.Insert() + "; and does its work only if that added a row. See pawl status and pawl dlq list, then deploy the rest"
	return nil
}

// judge refuses the switch if the shadow recorded a difference that needs an answer.
func (t *Table) judge(ctx context.Context, conn *pgx.Conn, r *Result) error {
	type difference struct {
		Old, Pawl string
		N         int64
		Example   string
	}
	var all []difference
	err := pinned(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.fill(`
select s.old, s.pawl, count(*), coalesce(min(s.key), '')
  from $differences as s
 group by s.old, s.pawl
 order by (s.old, s.pawl) = ('duplicate_ignored', 'processed'), s.old, s.pawl`))
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[difference])
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Old == "duplicate_ignored" && d.Pawl == "processed" {
			r.Differences = d.N
			continue
		}
		return refuse("find out which is right (the table under Shadow in docs/guides/adopting.md), then delete those rows of "+t.names.differences,
			"the old table said %s and Pawl %s, %d times, for instance for key %q", d.Old, d.Pawl, d.N, d.Example)
	}
	return nil
}

func (t *Table) runRemove(ctx context.Context, conn *pgx.Conn, r *Result, _ func(Result)) error {
	var reported bool
	if err := one(ctx, conn, "select exists (select from pawl.consumer as c where c.name = $1)", []any{t.Consumer}, &reported); err != nil {
		return err
	}
	if !reported {
		return refuse("run --step switch, and deploy what it prints", "no process of consumer %s has reported itself: step 3 is not done", t.Consumer)
	}
	if err := t.count(ctx, conn, t.Left(), &r.Left); err != nil {
		return err
	}
	if r.Left > 0 {
		next, err := t.untilOld(ctx, conn)
		if err != nil {
			return err
		}
		return refuse(next, "Pawl does not know %s of %s: without the table their redelivery would take effect again", text.Plural(r.Left, "row", "rows"), t.Name)
	}
	r.Next = "deploy the handler without the insert, keep the table for a while, then: drop table " + t.Name
	return t.apply(ctx, conn, t.Drop())
}

// untilOld says how the rows that Pawl does not know come to need the table no more.
func (t *Table) untilOld(ctx context.Context, conn *pgx.Conn) (next string, err error) {
	if t.Payload != nil {
		next = "run --step backfill again, or "
	}
	if t.Time == nil {
		return next + "add a time, and wait until they are " + fmt.Sprint(t.window()) + " days old: alter table " + t.Name + " add column processed_at timestamptz not null default now()", nil
	}
	next += fmt.Sprintf("wait until they are %d days old", t.window())
	var untimed int64
	if err := t.count(ctx, conn, t.Untimed(), &untimed); err != nil || untimed == 0 {
		return next, err
	}
	return next + fmt.Sprintf("; rows without a time (%d) never become old, so first: %s", untimed, t.SetTime()), nil
}

func (t *Table) runBack(ctx context.Context, conn *pgx.Conn, r *Result, say func(Result)) error {
	if err := t.mayGoBack(); err != nil {
		return err
	}
	if err := t.apply(ctx, conn, t.Back()); err != nil {
		return err
	}
	next := t.fill("select b.last, b.copied from $back($1) as b")
	for last := ""; ; {
		var behind *string
		var copied int64
		if err := one(ctx, conn, next, []any{last}, &behind, &copied); err != nil {
			return err
		}
		if behind == nil {
			break
		}
		last, r.Copied = *behind, r.Copied+copied
		say(*r)
	}
	if err := t.count(ctx, conn, t.Stored(), &r.Stored); err != nil {
		return err
	}
	r.Next = "deploy the build of step 3 or the old one"
	if r.Stored > 0 {
		r.Next += ", and keep one process of the new one until its stored deliveries are done"
	}
	return nil
}

// mayGoBack refuses to copy back into columns that Pawl has no values for.
func (t *Table) mayGoBack() error {
	missing := t.Required
	if t.Payload != nil && t.Payload.NotNull && !t.Payload.Default {
		missing = append(missing[:len(missing):len(missing)], *t.Payload)
	}
	if len(missing) == 0 {
		return nil
	}
	return refuse(fmt.Sprintf("first: alter table %s alter column %s drop not null", t.Name, missing[0].Quoted), "Pawl has no value for %s, which must not be null", t.list(missing))
}

// after refuses a step whose predecessor has not been run.
func (t *Table) after(ctx context.Context, conn *pgx.Conn, step string) error {
	var done bool
	err := one(ctx, conn, `
select exists (
       select
         from pg_catalog.pg_proc as f
         join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
        where n.nspname = $1 and f.proname = $2)`, []any{t.schema, t.names.base + "_shadow"}, &done)
	if err == nil && !done {
		return refuse("run it first: --step "+step, "step %s has not been run for consumer %s", step, t.Consumer)
	}
	return err
}

func (t *Table) count(ctx context.Context, conn *pgx.Conn, s Script, into *int64) error {
	return one(ctx, conn, string(s), nil, into)
}

// one reads one row.
func one(ctx context.Context, conn *pgx.Conn, query string, args []any, into ...any) error {
	return pinned(ctx, conn, func(tx pgx.Tx) error { return tx.QueryRow(ctx, query, args...).Scan(into...) })
}

// apply runs a script in one transaction, one process at a time. It waits for a lock for 2 s only,
// because others would queue behind it.
func (t *Table) apply(ctx context.Context, conn *pgx.Conn, s Script) error {
	return pinned(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('pawl adopt ' || $1, 0))", t.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "set local lock_timeout = '2s'"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, string(s), pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// IsRefusal returns the refusal in an error, or nil.
func IsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
