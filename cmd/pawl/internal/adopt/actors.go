package adopt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// A build is the program that a consumer of the rehearsal is.
type build string

const (
	old     build = "old"     // asks the table, and then the shadow
	fresher build = "new"     // asks Pawl, and then the table
	alone   build = "removed" // asks Pawl
)

// tryLimit bounds how often one message is redelivered, so that a rehearsal ends.
const tryLimit = 1000

// deathsIn is how many deliveries have one whose connection is cut.
const deathsIn = 25

// deliver has a consumer of each build receive all keys twice, all in the same order, so that they
// meet. If a connection is cut, the message comes again.
func (r *rehearsal) deliver(ctx context.Context, keys []string, beside func(context.Context) error, builds ...build) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var deliveries, deaths atomic.Int64
	for n, b := range builds {
		all.Go(func() {
			a := actor{rehearsal: r, build: b, luck: rand.New(rand.NewPCG(r.seed, uint64(len(r.proof.Played)*100+n)))}
			defer func() {
				a.cut()
				deliveries.Add(a.deliveries)
				deaths.Add(a.deaths)
			}()
			for range 2 {
				for _, key := range keys {
					if err := a.consume(ctx, key); err != nil {
						cancel(fmt.Errorf("the %s consumer: %w", b, err))
						return
					}
				}
			}
		})
	}
	if beside != nil {
		if err := beside(ctx); err != nil {
			cancel(err)
		}
	}
	all.Wait()
	r.proof.Deliveries += deliveries.Load()
	r.proof.Deaths += deaths.Load()
	return context.Cause(ctx)
}

// An actor is a consumer of the rehearsal, with a connection of its own.
type actor struct {
	*rehearsal
	build              build
	luck               *rand.Rand
	conn               *pgx.Conn
	deliveries, deaths int64
}

// cut ends the connection without a word to the server, as a killed process does.
func (a *actor) cut() {
	if a.conn != nil {
		_ = a.conn.PgConn().Conn().Close()
		a.conn = nil
	}
}

// consume delivers a message until it is acknowledged.
func (a *actor) consume(ctx context.Context, key string) error {
	for range tryLimit {
		a.deliveries++
		settled, err := a.receive(ctx, key)
		if err != nil || settled {
			return err
		}
	}
	return fmt.Errorf("key %q was not settled in %d deliveries", key, tryLimit)
}

// receive handles one delivery and reports whether the message may be acknowledged.
func (a *actor) receive(ctx context.Context, key string) (settled bool, err error) {
	if a.conn == nil {
		if a.conn, err = pgx.ConnectConfig(ctx, a.rehearsal.conn.Config()); err != nil {
			return false, err
		}
	}
	tx, err := a.conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	if err := pin(ctx, tx); err != nil {
		return false, err
	}
	settled, err = a.handle(ctx, tx, key)
	if err != nil {
		return false, err
	}
	dies, at := a.luck.IntN(deathsIn) == 0, a.luck.IntN(2)
	if a.fault == "early ack" && strings.HasSuffix(key, "7") {
		return true, tx.Rollback(ctx)
	}
	if dies && at == 0 {
		a.deaths++
		a.cut()
		return false, nil
	}
	if !settled {
		return false, tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return false, err
	}
	if dies { // committed, and not acknowledged
		a.deaths++
		a.cut()
		return false, nil
	}
	return true, nil
}

// handle does what the handler of the build does.
func (a *actor) handle(ctx context.Context, tx pgx.Tx, key string) (settled bool, err error) {
	if a.build != old {
		switch said, err := a.claim(ctx, tx, key); {
		case err != nil:
			return false, err
		case said == "duplicate_ignored":
			return true, nil
		case said != "processed":
			return false, nil
		}
	}
	fresh := true
	if a.build != alone {
		if fresh, err = a.ask(ctx, tx, key); err != nil {
			return false, err
		}
	}
	if fresh {
		if _, err := tx.Exec(ctx, "insert into "+stage+".effect (key, build) values ($1, $2)", key, string(a.build)); err != nil {
			return false, err
		}
	}
	if a.build == old {
		said := "duplicate_ignored"
		if fresh {
			said = "processed"
		}
		_, err = tx.Exec(ctx, a.copy.fill("select $shadow($text, $text, $payload, $1) from "+stage+".message as p where $key = $2::text::$type"), said, key)
	}
	return err == nil, err
}

// claim asks Pawl.
func (a *actor) claim(ctx context.Context, tx pgx.Tx, key string) (said string, err error) {
	err = tx.QueryRow(ctx, a.copy.fill(`
select c.outcome
  from `+stage+`.message as p
 cross join lateral pawl_v1.inbox_claim_many($consumer, array[$text], array[$fingerprint($payload)]) as c
 where $key = $1::text::$type`), key).Scan(&said)
	return said, err
}

// ask inserts into the table and reports whether it added a row.
func (a *actor) ask(ctx context.Context, tx pgx.Tx, key string) (fresh bool, err error) {
	if a.fault == "no table" && a.build != old {
		return true, nil
	}
	var columns []string
	for _, c := range a.copy.Columns {
		if !c.Computed {
			columns = append(columns, c.Quoted)
		}
	}
	list := strings.Join(columns, ", ")
	tag, err := tx.Exec(ctx, a.copy.fill("insert into $table (")+list+") overriding system value select "+list+
		a.copy.fill(" from "+stage+".message as p where $key = $1::text::$type on conflict do nothing"), key)
	return tag.RowsAffected() == 1, err
}
