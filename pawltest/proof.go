package pawltest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/inbox"
)

// A Proof is a handler to be proved, on databases of its own: however often its delivery comes, and wherever the process dies, every
// table outside of Pawl's schemas must hold the same rows as after one delivery that went well. Columns in which two such deliveries, in
// two databases, differ are not compared: times, ids that a sequence gave, random values. How many rows there are always is.
type Proof struct {
	// Schema are the scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Handler is what is proved. Give it or Make.
	Handler pawl.Handler
	// Make makes the handler for a database, for one that keeps a pool.
	Make func(*pgxpool.Pool) pawl.Handler
	// Delivery is what the handler is handed. Default key "proof", no body.
	Delivery pawl.Delivery
	// Ignore are more columns that are not compared, as "column" or "table.column". Default none.
	Ignore []string
	// Check is what else must hold afterwards, such as how often something outside was called. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

// Twice delivers twice, one after the other and both at once.
func Twice(tb testing.TB, p Proof) {
	tb.Helper()
	want := p.once(tb)
	p.on(tb, "twice in sequence", want, func(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler) error {
		if err := p.deliver(ctx, pool, h, never()); err != nil {
			return err
		}
		return p.deliver(ctx, pool, h, never())
	})
	p.on(tb, "twice at once", want, func(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler) error {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			both.Go(func() { errs[i] = p.deliver(ctx, pool, h, never()) })
		}
		both.Wait()
		if errs[0] != nil {
			return errs[0]
		}
		return errs[1]
	})
}

// maxBoundaries bounds the crashes of one CrashEverywhere.
const maxBoundaries = 1000

// CrashEverywhere lets the process die before and after each statement of the handler, before COMMIT and after it, and then delivers
// again. The process dies as far as the database can tell: the connection is gone, and the handler's goroutine ends.
func CrashEverywhere(tb testing.TB, p Proof) {
	tb.Helper()
	want := p.once(tb)
	for n := 1; n <= maxBoundaries; n++ {
		crash := &boundaries{at: n}
		p.on(tb, fmt.Sprintf("death at boundary %d", n), want, func(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler) error {
			if err := p.deliver(ctx, pool, h, crash); err != nil {
				return err
			}
			return p.deliver(ctx, pool, h, never())
		})
		if !crash.crashed {
			return
		}
	}
	tb.Errorf("pawltest: more than %d boundaries; the later ones were not tried", maxBoundaries)
}

// once returns what the tables hold after one delivery, without the columns in which two deliveries differ.
func (p Proof) once(tb testing.TB) (want contents) {
	tb.Helper()
	var other contents
	p.on(tb, "once", nil, func(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler) (err error) {
		if err = moveSequences(ctx, pool); err == nil {
			err = p.deliver(ctx, pool, h, never())
		}
		if err == nil {
			other, err = read(ctx, pool, p.Ignore)
		}
		return err
	})
	p.on(tb, "once", nil, func(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler) (err error) {
		if err = p.deliver(ctx, pool, h, never()); err == nil {
			want, err = read(ctx, pool, p.Ignore)
		}
		if err == nil {
			want, err = read(ctx, pool, want.differing(other))
		}
		return err
	})
	return want
}

// on runs one case on a fresh database and compares its tables with what is wanted.
func (p Proof) on(tb testing.TB, name string, want contents, do func(context.Context, *pgxpool.Pool, pawl.Handler) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, URL(tb, p.Schema...))
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	defer pool.Close()
	h := p.Handler
	if p.Make != nil {
		h = p.Make(pool)
	}
	if err := do(ctx, pool, h); err != nil {
		tb.Fatalf("pawltest: %s: %v", name, err)
	}
	if want != nil {
		got, err := read(ctx, pool, want.without())
		if err != nil {
			tb.Fatalf("pawltest: %s: %v", name, err)
		}
		for _, line := range got.unlike(want) {
			tb.Errorf("pawltest: %s: %s", name, line)
		}
	}
	if p.Check != nil {
		p.Check(tb, pool)
	}
}

// deliver is what a consumer does with one delivery: claim, handle, commit, all in one transaction, again while somebody else has it.
func (p Proof) deliver(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler, b *boundaries) error {
	d := p.Delivery
	if d.Key == "" {
		d.Key = "proof"
	}
	for {
		err := p.attempt(ctx, pool, h, d, b)
		if !pawl.Retryable(err) || b.crashed {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p Proof) attempt(ctx context.Context, pool *pgxpool.Pool, h pawl.Handler, d pawl.Delivery, b *boundaries) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	claim, err := inbox.Take(ctx, tx, pawl.Intent{Scope: "pawltest", Key: d.Key, Fingerprint: pawl.FingerprintOf(d.Body)})
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if claim.Fresh {
			err = h(ctx, &watchedTx{tx, b}, d)
		}
		if err == nil {
			b.pass()
			err = tx.Commit(ctx)
			b.pass()
		}
	}()
	<-done
	if b.crashed {
		_ = conn.Conn().PgConn().Conn().Close() // without a word, as the kernel does it
		return nil
	}
	return err
}

// boundaries count the places at which a process could die, and let it die at one of them.
type boundaries struct {
	at      int // 0: nowhere
	passed  int
	crashed bool
}

func never() *boundaries { return &boundaries{} }

// pass ends the goroutine if this is the place. What was crashed passes nothing more.
func (b *boundaries) pass() {
	if b.passed++; b.passed == b.at {
		b.crashed = true
		runtime.Goexit()
	}
}
