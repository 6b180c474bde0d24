//go:build proof

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// While old consumers take messages several times, the backfill and the rehearsal are killed again
// and again. In the end Pawl knows each message, and each took effect once.
func TestAdopt_KilledUnderLoad(t *testing.T) {
	t.Parallel()
	db := withProcessed(t)
	exec1(t, db, `create table effect (message_id text not null);
insert into effect select message_id from processed_messages;
insert into processed_messages (message_id, body) select 'n' || n, 'x' from generate_series(1, 20000) as n;
insert into effect select message_id from processed_messages where message_id like 'n%'`)
	mustPawl(t, db, adopt("--step", "shadow", "--yes")...)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			luck := rand.New(rand.NewPCG(1, uint64(n)))
			for ctx.Err() == nil {
				if err := consumeByHand(t.Context(), db, luck); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	look := connect(t, db)
	kill := func(args []string, due string) {
		t.Helper()
		cmd := command(t, db, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		patience.Until(t, due, func() (ok bool) {
			if len(ended) > 0 {
				return true
			}
			return look.QueryRow(t.Context(), due).Scan(&ok) == nil && ok
		})
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
	}
	for n := range 8 {
		kill(adopt("--step", "backfill", "--yes"), fmt.Sprintf("select count(*) > %d from pawl.inbox where consumer = 'payments'", n*2500))
	}
	kill(adopt("--rehearse"), "select to_regclass('adopt_rehearsal.effect') is not null")
	if r := mustPawl(t, db, adopt("--rehearse")...); !strings.HasSuffix(r.stdout, " 0 lost, 0 doubled\n") {
		t.Error(r.stdout)
	}
	mustPawl(t, db, adopt("--step", "backfill", "--yes")...)
	stop()
	all.Wait()
	r := decode[map[string]any](t, mustPawl(t, db, adopt("--step", "backfill", "--yes", "--json")...).stdout)
	if r["left"] != 0.0 {
		t.Errorf("%v", r)
	}
	mustPawl(t, db, adopt("--step", "switch")...)
	for query, what := range map[string]string{
		"select count(*)::int from (select from effect group by message_id having count(*) > 1) as d":                                    "doubled",
		"select count(*)::int from processed_messages as p where not exists (select from effect as e where e.message_id = p.message_id)": "lost",
		"select count(*)::int from pawl.inbox as i where not exists (select from processed_messages as p where p.message_id = i.key)":    "keys that never took effect",
		"select count(*)::int from pg_namespace where nspname = 'adopt_rehearsal'":                                                       "schemas left",
		"select count(*)::int from pawl.inbox where consumer = 'adopt_rehearsal'":                                                        "keys of the rehearsal left",
	} {
		if n := one[int](t, db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// consumeByHand is an old consumer with the shadow that takes 100 messages, new and known ones, and
// dies before some commits.
func consumeByHand(ctx context.Context, db string, luck *rand.Rand) error {
	conn, err := pgx.Connect(ctx, db)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for range 100 {
		id := fmt.Sprint([]string{"live", "m", "n"}[luck.IntN(3)], 1001+luck.IntN(3000))
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "insert into processed_messages (message_id, body) values ($1, 'x') on conflict do nothing", id)
		if err != nil {
			return err
		}
		said := "duplicate_ignored"
		if tag.RowsAffected() == 1 {
			said = "processed"
			if _, err := tx.Exec(ctx, "insert into effect values ($1)", id); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "select adopt_payments_shadow($1::text, $1::text, 'x', $2)", id, said); err != nil {
			return err
		}
		if luck.IntN(20) == 0 {
			return conn.PgConn().Conn().Close()
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}
