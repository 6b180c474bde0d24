package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
)

const things = `create table thing (id bigint primary key, status text not null default 'pending', claimed_at timestamptz, completed_at timestamptz,
  last_error text, attempt_count int not null default 0); insert into thing (id) select g from generate_series(1, 30) as g`

// A message that names a row starts its work once; whatever the row holds afterwards, the message is gone, and nothing is in the
// inbox. A message whose row is not there stays.
func TestTrigger_TheRowRemembers(t *testing.T) {
	t.Parallel()
	b := setup(t, things)
	rows, err := guard.New(b.pool, guard.Table{Name: "thing"})
	if err != nil {
		t.Fatal(err)
	}
	var absent atomic.Int32
	b.config.Handler = nil
	b.config.Trigger = func(ctx context.Context, d pawl.Delivery) error {
		var message struct{ ID int64 }
		if err := json.Unmarshal(d.Body, &message); err != nil {
			return err
		}
		err := rows.Once(ctx, message.ID, func(ctx context.Context, tx pgx.Tx) (any, error) {
			if message.ID == 7 {
				return nil, errors.New("cannot be done")
			}
			if message.ID == 8 {
				_, err := tx.Exec(ctx, "select 'x'::int")
				return nil, err
			}
			return nil, apply(ctx, tx, d)
		})
		if errors.Is(err, pawl.ErrNotFound) {
			absent.Add(1)
		}
		return err
	}
	for n := range 30 {
		d := order(n + 1)
		d.Body, _ = json.Marshal(map[string]int{"id": n + 1})
		b.source.send(d, d)
	}
	b.source.send(pawl.Delivery{Body: []byte(`{"id": 99}`)})
	b.start()
	b.until("all but one acknowledged", func() bool { return b.source.open() == 1 })
	b.until("the other one came again", func() bool { return absent.Load() > 1 })
	b.wantEffects(28)
	if n := b.count("select count(*) from thing where status = 'error' and last_error like 'cannot be done%' and attempt_count = 1"); n != 1 {
		t.Errorf("%d rows hold the error", n)
	}
	if n := b.count("select count(*) from pawl.inbox") + b.count("select count(*) from pawl.job"); n != 0 {
		t.Errorf("%d rows of Pawl's", n)
	}
	handled, failed, final := b.counters.Count(pawl.EventGuardHandled), b.counters.Count(pawl.EventRetryable), b.counters.Count(pawl.EventFinal)
	if handled != 30 || failed != 1 || final != 1 {
		t.Errorf("%d already handled, %d failed, %d for good", handled, failed, final)
	}
}
