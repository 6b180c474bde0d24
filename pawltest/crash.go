package pawltest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pace"
)

// A HandlerTest tests a [consumer.HandleTx] or [consumer.HandleSQL] on databases of its own.
// However often its delivery comes, and wherever the process dies, every table outside of Pawl's
// schemas must hold the same rows as after one undisturbed delivery. The same jobs and events must
// be enqueued. Columns that differ between two undisturbed runs are not compared: times, ids from a
// sequence, random values. The number of rows is always compared.
type HandlerTest struct {
	// Schema holds scripts that make your tables, and the rows that the handler needs.
	Schema []string
	// Handler is the handler to test. Set Handler or Make.
	Handler consumer.Handler
	// Make returns the handler, for one that keeps a pool. It is called for each database, and
	// again after a death.
	Make func(*pgxpool.Pool) consumer.Handler
	// Delivery is the handler's input. Default key "test", no body.
	Delivery pawl.Delivery
	// Ignore names more columns that are not compared, as "column" or "table.column". Default none.
	Ignore []string
	// Check tests what else must hold at the end, such as the number of calls of another system. It
	// is called once for each database. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

// Twice delivers, sends a [RequestTest]'s request, or runs a [WorkTest]'s worker twice: first in
// sequence, then at once.
func Twice[P HandlerTest | RequestTest | TriggerTest | WorkTest](tb testing.TB, p P) {
	tb.Helper()
	c := caseOf(p)
	want, ok := c.undisturbed(tb)
	if !ok {
		return
	}
	c.on(tb, "twice in sequence", want, func(ctx context.Context, t *trial) (contents, error) {
		_, work, err := t.start(ctx, 0)
		if err == nil {
			_, err = work(ctx)
		}
		if err != nil {
			return nil, err
		}
		return work(ctx)
	})
	c.on(tb, "twice at once", want, func(ctx context.Context, t *trial) (contents, error) {
		_, work, err := t.start(ctx, 0)
		if err != nil {
			return nil, err
		}
		return t.twice(ctx, work)
	})
}

// Limits of one CrashEverywhere: the points to die at, and the failing points before it stops.
const (
	maxPoints = 1000
	mostWrong = 5
)

// CrashEverywhere makes the process die before and after each statement of the handler, before and
// after its COMMIT, and after a handler without a transaction returns. It also loses the reply to
// each COMMIT without a death. Each point gets a fresh database. Then it delivers again, runs the
// jobs again, sends the request again, or runs the worker again, and compares the results.
//
// A death cuts all connections of the process's pools at once. The next process has its own pools.
// If a handler continues after its statement failed, that shows. Only the pool passed to Make and
// the transaction passed to the handler are watched and cut. A pool of your own is not.
//
// If a [TriggerTest] or a [WorkTest] survives each death, its process then stalls before each
// statement, while another takes over.
//
// It stops after five failing points. The test also fails if there is no point to die at, or if the
// handler leaves nothing to compare and there is no Check.
func CrashEverywhere[P HandlerTest | JobTest | RequestTest | TriggerTest | WorkTest](tb testing.TB, p P) {
	tb.Helper()
	c := caseOf(p)
	want, ok := c.undisturbed(tb)
	if !ok {
		return
	}
	wrong, try, stalling := 0, c.crash, false
	for n, tried := 1, 1; tried <= maxPoints; n, tried = n+1, tried+1 {
		fine, died := try(tb, n, want)
		if !fine {
			wrong++
		}
		switch {
		case died && wrong < mostWrong:
			continue
		case died:
			tb.Errorf("pawltest: the points after these %d were not tried: %s", wrong, c.advice)
		case c.stalls && !stalling && n > 1 && wrong == 0:
			try, stalling, n = c.stall, true, 0
			continue
		case n == 1:
			tb.Errorf("pawltest: there was no point to die at, so nothing is tested: %s", c.idle)
		case wrong > 0:
			tb.Errorf("pawltest: %s", c.advice)
		}
		return
	}
	tb.Errorf("pawltest: more than %d points; the later ones were not tried", maxPoints)
}

// deliver does what a consumer does with one delivery, and retries while the key is in progress.
func (p HandlerTest) deliver(ctx context.Context, of *process, h consumer.Handler) error {
	d := p.Delivery
	d.Key = cmp.Or(d.Key, "test")
	for {
		err := p.attempt(ctx, of, h, p.intent(d), d)
		if !pawl.Retryable(err) || !pace.Sleep(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

func (p HandlerTest) intent(d pawl.Delivery) pawl.Intent {
	return pawl.Intent{Scope: "pawltest", Key: d.Key, Fingerprint: pawl.FingerprintOf(d.Payload)}
}

func (p HandlerTest) attempt(ctx context.Context, of *process, h consumer.Handler, intent pawl.Intent, d pawl.Delivery) error {
	switch h := h.(type) {
	case consumer.TxHandler:
		return inPgx(ctx, of, intent, func(tx pgx.Tx) error { return h.Apply(ctx, tx, d) })
	case consumer.SQLHandler:
		return inSQL(ctx, of, intent, func(tx *sql.Tx) error { return h.Apply(ctx, tx, d) })
	}
	return fmt.Errorf("a HandlerTest tests a HandleTx or a HandleSQL, not a %T", h)
}

// inPgx claims, calls the handler if the claim is fresh, and commits.
func inPgx(ctx context.Context, of *process, intent pawl.Intent, apply func(pgx.Tx) error) error {
	tx, err := of.own.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	claim, err := inbox.Take(ctx, tx, intent)
	if err != nil {
		return err
	}
	if claim.Fresh {
		of.lend(tx.Conn())
		if err := apply(tx); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// inSQL is inPgx for database/sql.
func inSQL(ctx context.Context, of *process, intent pawl.Intent, apply func(*sql.Tx) error) error {
	db := stdlib.OpenDBFromPool(of.own)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	claim, err := inbox.Take(ctx, pawl.SQLTx(tx), intent)
	if err != nil {
		return err
	}
	if claim.Fresh {
		if err := conn.Raw(func(driver any) error { of.lend(driver.(*stdlib.Conn).Conn()); return nil }); err != nil {
			return err
		}
		if err := apply(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (p HandlerTest) crashCase() crashCase {
	return crashCase{
		schema: p.Schema, ignore: p.Ignore, check: p.Check,
		begin: func(_ context.Context, _ *trial, of *process) (life, error) {
			h := p.Handler
			if p.Make != nil {
				h = p.Make(of.yours)
			}
			return func(ctx context.Context) (contents, error) {
				of.running.RLock()
				defer of.running.RUnlock()
				return nil, p.deliver(ctx, of, h)
			}, nil
		},
		advice: "write rows only in the transaction that the handler gets, and call other systems in a job that it " +
			"enqueues in that transaction",
		idle: "was the delivery processed before?",
	}
}
