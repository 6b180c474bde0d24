package adopt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/text"
)

const (
	// stage is the schema of a rehearsal, and the name of its consumer.
	stage       = "adopt_rehearsal"
	stageMark   = "made by pawl adopt --rehearse; it may be dropped"
	sampleLimit = 1000
	// bodyLimit bounds the stored size of a payload in the sample.
	bodyLimit = 32 << 10
)

// A Proof is the result of a rehearsal. Lost and Doubled are counted in the table of effects.
type Proof struct {
	Messages   int      `json:"messages"`
	Deliveries int64    `json:"deliveries"`
	Deaths     int64    `json:"deaths"` // connections that were cut before or after COMMIT
	Lost       int64    `json:"lost"`
	Doubled    int64    `json:"doubled"`
	Examples   []string `json:"examples"` // keys that were lost or doubled
	Played     []string `json:"played"`
	Left       []string `json:"left"` // what was not played, and why
}

// A rehearsal plays the steps on a copy of the table, in a schema and under a consumer of its own.
type rehearsal struct {
	real, copy *Table
	conn       *pgx.Conn
	seed       uint64
	say        func(string)
	proof      Proof
	// fault plants a mistake, so that a test can see the counts fail.
	fault string
}

// Rehearse copies at most 1000 rows of the window and plays all steps on them while consumers of
// both kinds get each message several times. It removes what it made.
func (t *Table) Rehearse(ctx context.Context, conn *pgx.Conn, seed uint64, say func(string)) (Proof, error) {
	return (&rehearsal{real: t, conn: conn, seed: seed, say: say}).run(ctx)
}

func (r *rehearsal) run(ctx context.Context) (p Proof, err error) {
	guard, err := pgx.ConnectConfig(ctx, r.conn.Config())
	if err != nil {
		return p, err
	}
	defer guard.Close(context.WithoutCancel(ctx))
	// The lock is a transaction's: a pooler may give the session to others.
	lock, err := guard.Begin(ctx)
	if err != nil {
		return p, err
	}
	defer func() { _ = lock.Rollback(context.WithoutCancel(ctx)) }()
	var alone bool
	if err := lock.QueryRow(ctx, "select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))", stage).Scan(&alone); err != nil {
		return p, err
	}
	if !alone {
		return p, refuse("wait for its end", "another rehearsal runs in this database")
	}
	// A rehearsal that was killed left its schema.
	if err := clear(ctx, r.conn); err != nil {
		return p, err
	}
	defer func() {
		if end := r.end(context.WithoutCancel(ctx)); err == nil {
			err = end
		}
	}()
	keys, err := r.build(ctx)
	if err != nil {
		return p, err
	}
	r.proof = Proof{Messages: len(keys), Examples: []string{}, Played: []string{}, Left: []string{}}
	if err := r.play(ctx, keys); err != nil {
		return p, err
	}
	return r.proof, r.judge(ctx)
}

// end clears up. If the connection is gone, it uses another one.
func (r *rehearsal) end(ctx context.Context) error {
	conn := r.conn
	if conn.IsClosed() {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, r.conn.Config()); err != nil {
			return err
		}
		defer conn.Close(ctx)
	}
	return clear(ctx, conn)
}

// clear removes what a rehearsal made.
func clear(ctx context.Context, conn *pgx.Conn) error {
	return pinned(ctx, conn, func(tx pgx.Tx) error {
		var made, ours bool
		err := tx.QueryRow(ctx, `
select count(*) > 0, coalesce(bool_and(coalesce(obj_description(n.oid, 'pg_namespace') = $2, false)), false)
  from pg_namespace as n
 where n.nspname = $1`, stage, stageMark).Scan(&made, &ours)
		switch {
		case err != nil:
			return err
		case !made:
			return nil
		case !ours:
			return refuse("rename it: the rehearsal needs that name", "schema %s exists and is not a rehearsal's", stage)
		}
		if _, err := tx.Exec(ctx, "delete from pawl.inbox as i where i.consumer = $1", stage); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "drop schema "+stage+" cascade")
		return err
	})
}

// build makes the copy, which knows half of the sample, and table message with all of it.
func (r *rehearsal) build(ctx context.Context) (keys []string, err error) {
	t := r.real
	var columns []string
	for _, c := range t.Columns {
		if !c.Computed {
			columns = append(columns, c.Quoted)
		}
	}
	list, name := strings.Join(columns, ", "), pgx.Identifier{stage, "processed"}.Sanitize()
	small := ""
	if t.Payload != nil {
		small = fmt.Sprintf("\n   and p.%s is not null and pg_column_size(p.%[1]s) < %d", t.Payload.Quoted, bodyLimit)
	}
	err = pinned(ctx, r.conn, func(tx pgx.Tx) error {
		for _, s := range []string{
			"create schema " + stage,
			"comment on schema " + stage + " is '" + stageMark + "'",
			"create table " + name + " (like " + t.Name + " including all)",
			"create table " + stage + ".message (like " + t.Name + " including all)",
			"create table " + stage + ".effect (key text not null, build text not null)",
			t.fill("insert into "+stage+".message (") + list + ") overriding system value\nselect " + list +
				t.fill("\n  from $table as p\n where octet_length($text) between 1 and 255$and") + small + fmt.Sprintf("\n limit %d", sampleLimit),
		} {
			if _, err := tx.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, t.fill("select $text from "+stage+".message as p order by 1"))
		if err != nil {
			return err
		}
		if keys, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		if len(keys) < 8 {
			return refuse("rehearse on a copy of the database that has more", "%s has %d rows of the last %d days that fit, and a rehearsal needs 8", t.Name, len(keys), t.Days)
		}
		rand.New(rand.NewPCG(r.seed, 0)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		known := keys[:len(keys)/2]
		if _, err := tx.Exec(ctx, "insert into "+name+" ("+list+") overriding system value select "+list+t.fill(" from "+stage+".message as p where $text = any ($1::text[])"), known); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into "+stage+".effect (key, build) select k, 'before' from unnest($1::text[]) as k", known)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := t.choice
	c.Table, c.Consumer, c.Key, c.Time = name, stage, t.Key.Name, ""
	if t.Time != nil {
		c.Time = t.Time.Name
	}
	r.copy, err = Find(ctx, r.conn, c)
	return keys, err
}

// play goes through the steps. The messages come in five parts: each phase is the first that
// delivers one of them, and redelivers others.
func (r *rehearsal) play(ctx context.Context, keys []string) error {
	known, fresh := keys[:len(keys)/2], keys[len(keys)/2:]
	again := known[len(known)/2:] // the others come again in step 4: only the backfill knows them
	part := func(n int) []string { return fresh[len(fresh)*n/4 : len(fresh)*(n+1)/4] }

	if err := r.step(ctx, "shadow"); err != nil {
		return err
	}
	backfill := func(context.Context) error { return nil }
	if r.real.Payload != nil && r.fault != "no backfill" {
		backfill = func(ctx context.Context) error { return r.step(ctx, "backfill") }
	}
	r.note("1 and 2: the old consumer with the shadow, while the backfill runs")
	if err := r.deliver(ctx, slices.Concat(again, part(0)), backfill, old, old); err != nil {
		return err
	}
	if err := r.step(ctx, "switch"); err != nil {
		return err
	}
	r.note("3: old and new consumers at once")
	if r.real.Payload == nil {
		// Without a backfill only the table knows the others.
		if err := r.deliver(ctx, known, nil, fresher); err != nil {
			return err
		}
	}
	if err := r.deliver(ctx, slices.Concat(again, part(0), part(1)), nil, old, fresher, old, fresher); err != nil {
		return err
	}
	if r.real.Payload == nil {
		r.leave("4 was left out: without a payload the table is needed until its rows are too old to come again")
		r.note("back: the old consumer alone")
		return r.deliver(ctx, keys, nil, old, old)
	}
	if err := r.mayRemove(ctx); err != nil {
		return err
	}
	r.note("4: the new consumer without the table")
	last := slices.Concat(known, part(0), part(1), part(2))
	back := r.copy.mayGoBack()
	if back != nil {
		last = keys
	}
	if err := r.deliver(ctx, last, nil, alone, alone); err != nil {
		return err
	}
	if back != nil {
		r.leave("back was left out: " + back.Error())
		return nil
	}
	r.note("back: the keys are copied back, then the old consumer alone")
	if r.fault != "no copy" {
		if err := r.step(ctx, "back"); err != nil {
			return err
		}
	}
	return r.deliver(ctx, keys, nil, old, old)
}

// mayRemove is the check of step 4. A second backfill finds keys that both builds had at once.
func (r *rehearsal) mayRemove(ctx context.Context) error {
	if r.fault == "no backfill" {
		return nil
	}
	b, err := r.copy.Run(ctx, r.conn, "backfill", func(Result) {})
	if err == nil && b.Left > 0 {
		err = refuse("file a bug with the output of the plan", "Pawl does not know %s of the copy after the backfill", text.Plural(b.Left, "row", "rows"))
	}
	return err
}

func (r *rehearsal) note(line string) {
	r.proof.Played = append(r.proof.Played, line)
	r.say(line)
}

func (r *rehearsal) leave(line string) {
	r.proof.Left = append(r.proof.Left, line)
	r.say(line)
}

func (r *rehearsal) step(ctx context.Context, name string) error {
	_, err := r.copy.Run(ctx, r.conn, name, func(Result) {})
	return err
}

// judge counts the effects of each message.
func (r *rehearsal) judge(ctx context.Context) error {
	return pinned(ctx, r.conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, r.copy.fill(`
select $text, (select count(*) from `+stage+`.effect as e where e.key = $text)
  from `+stage+`.message as p`))
		if err != nil {
			return err
		}
		var key string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
			switch {
			case n == 0:
				r.proof.Lost++
			case n > 1:
				r.proof.Doubled++
			default:
				return nil
			}
			if len(r.proof.Examples) < 5 {
				r.proof.Examples = append(r.proof.Examples, key)
			}
			return nil
		})
		return err
	})
}
