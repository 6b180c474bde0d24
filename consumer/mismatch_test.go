package consumer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// A handler may fail because it reused another key, of another consumer's delivery, a job or a
// command. That is the handler's failure. The delivery is a mismatch only if its own key came with
// another payload, although both errors are ErrKeyReused of the same SQL function.
func TestConsumer_HandlersReusedKeyIsNoMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Handler = consumer.HandleTx(func(ctx context.Context, tx pgx.Tx, m consumer.Message[[]byte]) error {
		d := m.Delivery
		if d.Key == "b" { // the second claim has another payload
			for _, payload := range []string{"one", "two"} {
				if _, err := tx.Exec(ctx, "select pawl_v1.inbox_claim('elsewhere', 'k', sha256($1))", []byte(payload)); err != nil {
					return err
				}
			}
		}
		return apply(ctx, tx, d)
	})
	b.source.Send(pawl.Delivery{Key: "a", Payload: []byte("body 1")}, pawl.Delivery{Key: "b", Payload: []byte("body")})
	b.consume()
	b.source.Send(pawl.Delivery{Key: "a", Payload: []byte("body 2")})
	b.consume()
	var letters []string
	rows, err := b.pool.Query(t.Context(), `select concat_ws(' ', j.headers ->> 'pawl-key', j.headers ->> 'pawl-inbox-key' like 'pawl/mismatch/%',
       j.last_errors -> -1 ->> 'code', s.advice like 'it came under a known key%')
  from pawl.job as j
  join pawl_v1.stale_classify('job') as s on s.key = j.id::text
 order by j.headers ->> 'pawl-key'`)
	if err == nil {
		letters, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if got, want := strings.Join(letters, "; "), "a t mismatch t; b f P4002 f"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if mismatches, failed := b.counters.Count(pawl.EventMismatch), b.counters.Count(pawl.EventFailed); mismatches != 1 || failed != 1 {
		t.Errorf("%d mismatches and %d failed, want one of each", mismatches, failed)
	}
}
