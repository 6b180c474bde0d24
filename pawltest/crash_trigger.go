package pawltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
)

// A TriggerTest tests the work of a row that package guard watches, on databases of its own. A
// message names the row, as with [consumer.Trigger]. If the process dies, its message comes again
// unless it was acknowledged, and a [guard.Sweeper] of the next process takes the row back.
//
// [CrashEverywhere] also lets the process stall before each statement. Meanwhile another process
// takes the row over. Then the first goes on, or earlier if the other waits for one of its locks.
// The row must be completed in the end, and your tables and the enqueued jobs must be as after one
// undisturbed run. The comparison is that of [HandlerTest], without the columns AttemptCount and
// LastError.
type TriggerTest struct {
	// Schema holds scripts that make your tables, and the row.
	Schema []string
	// Table maps the table of the row.
	Table guard.Table
	// ID is the id of the row, as text. Default "1".
	ID string
	// Make returns the function that handles a row. The test calls it for each message, and passes
	// it to [guard.Rows.Sweeper]. Make is called for each process.
	Make func(*pgxpool.Pool, *guard.Rows) func(ctx context.Context, id string) error
	// Ignore names more columns that are not compared, as "column" or "table.column". Default none.
	Ignore []string
	// Check tests what else must hold at the end, such as the number of calls of another system. It
	// is called once for each database. Optional.
	Check func(testing.TB, *pgxpool.Pool)
}

func (p TriggerTest) crashCase() crashCase {
	return crashCase{
		schema: p.Schema, check: p.Check, begin: p.begin, stalls: true,
		ignore: append(slices.Clone(p.Ignore), cmp.Or(p.Table.AttemptCount, "attempt_count"), cmp.Or(p.Table.LastError, "last_error")),
		advice: "write rows only in the transaction of Rows.Once or Claimed.Commit, which prove that the row is yours; call other systems in a step " +
			"of package step, with the Claimed as its holder",
		idle: "was the row completed before?",
	}
}

func (p TriggerTest) begin(_ context.Context, t *trial, of *process) (life, error) {
	if p.Make == nil {
		return nil, errors.New("a TriggerTest needs Make")
	}
	rows, err := guard.New(of.yours, p.Table)
	if err != nil {
		return nil, err
	}
	handle, later := p.Make(of.yours, rows), !t.first()
	return func(ctx context.Context) (contents, error) {
		of.running.RLock()
		defer of.running.RUnlock()
		cfg := guard.SweeperConfig{Every: -1, Wait: 1, MaxWait: 1, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}
		// The holder of the row is dead, stalled or has lost a reply.
		takesOver := later || of.wasHit()
		if takesOver {
			cfg.StuckAfter, cfg.PendingAfter = 1, 1
		}
		sweeper, err := rows.Sweeper(cfg, handle)
		if err != nil {
			return nil, err
		}
		sweeping, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		defer func() { stop(); <-ended }()
		go func() {
			defer close(ended)
			_ = sweeper.Run(sweeping)
		}()
		<-sweeper.Ready()
		if err := p.deliver(ctx, t, of, handle); err != nil {
			return nil, err
		}
		return nil, p.settle(ctx, t, rows.Table(), sweeper, func() bool { return !takesOver && of.wasHit() })
	}, nil
}

const (
	mostTries = 20
	tick      = 5 * time.Millisecond // between two tries
)

func (p TriggerTest) id() string { return cmp.Or(p.ID, "1") }

// deliver delivers the message until it is acknowledged. An acknowledged message does not come
// again to another process.
func (p TriggerTest) deliver(ctx context.Context, t *trial, of *process, handle func(context.Context, string) error) (err error) {
	if !t.first() && t.acknowledged.Load() {
		return nil
	}
	for range mostTries {
		err = txn.Safely(func() error { return handle(ctx, p.id()) })
		switch {
		case of.dead():
			return errCut
		case err == nil, errors.Is(err, pawl.ErrAlreadyHandled), errors.Is(err, pawl.ErrFailureRecorded), errors.Is(err, pawl.ErrInProgress) && pawl.Swept(err):
			t.acknowledged.Store(true)
			return nil
		case t.stalling.Load(): // the stalled process may have locked the row
			return nil
		case !pace.Sleep(ctx, tick):
			return err
		}
	}
	return fmt.Errorf("the message was not acknowledged: %w", err)
}

// settle makes passes of the sweeper until the row is completed. It gives up soon beside a stalled
// process, which may hold the row, and if another life will take the row over.
func (p TriggerTest) settle(ctx context.Context, t *trial, table guard.Table, sweeper *guard.Sweeper, leaves func() bool) error {
	look := fmt.Sprintf("select %s::text from %s where %s::text = $1", pgx.Identifier{table.Status}.Sanitize(),
		pgx.Identifier(strings.Split(table.Name, ".")).Sanitize(), pgx.Identifier{table.ID}.Sanitize())
	for tries := 1; ; tries++ {
		var status string
		if err := t.eyes.QueryRow(ctx, look, p.id()).Scan(&status); err != nil {
			return fmt.Errorf("row %s of %s: %w", p.id(), table.Name, err)
		}
		switch {
		case status == table.Completed:
			return nil
		case tries > 3 && (t.stalling.Load() || leaves()):
			return fmt.Errorf("row %s of %s is %s, and the sweeper does not complete it", p.id(), table.Name, status)
		}
		if _, err := sweeper.Pass(ctx); err != nil {
			return err
		}
		if !pace.Sleep(ctx, tick) {
			return fmt.Errorf("row %s of %s is still %s", p.id(), table.Name, status)
		}
	}
}
