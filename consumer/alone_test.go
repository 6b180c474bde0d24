package consumer_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
)

// harmful is a schema in which a row with the key culprit loses its transaction, now or at COMMIT.
func harmful(do string, deferred bool) string {
	trigger := "create trigger harm after insert on effect for each row"
	if deferred {
		trigger = "create constraint trigger harm after insert on effect deferrable initially deferred for each row"
	}
	return fmt.Sprintf(`create function harm() returns trigger language plpgsql as $$
begin
  if new.key = 'culprit' then
    perform %s;
  end if;
  return null;
end $$;
%s execute function harm()`, do, trigger)
}

// If a handler loses its transaction each time while the server answers others, the attempts are
// charged, and the delivery becomes a dead letter. Other deliveries take effect.
func TestConsumer_AHandlerThatIsLostAloneIsCharged(t *testing.T) {
	t.Parallel()
	const kill = "pg_terminate_backend(pg_backend_pid())"
	for name, harm := range map[string]struct {
		do       string
		deferred bool
	}{
		"killed":           {do: kill},
		"killed at COMMIT": {do: kill, deferred: true},
	} {
		for form, set := range map[string]func(b *bed){
			"tx":   func(*bed) {},
			"many": func(b *bed) { b.batches(nothing) },
			"sql": func(b *bed) {
				b.form.sql = func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
					_, err := tx.ExecContext(ctx, "insert into effect values ($1, $2)", d.Key, string(d.Payload))
					return err
				}
			},
			"work": func(b *bed) {
				b.form.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
					return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, a.Delivery) })
				}
			},
		} {
			t.Run(form+" "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, harmful(harm.do, harm.deferred))
				b.form.MaxAttempts = 2
				set(b)
				const good = 10
				b.source.Send(pawl.Delivery{Key: "culprit", OrderingKey: "a", Payload: []byte("x")})
				for n := range good {
					d := order(n)
					d.OrderingKey = []string{"", "b"}[n%2]
					b.source.Send(d)
				}
				b.consume()
				b.wantEffects(good)
				if n := b.count("select count(*) from pawl_v1.dead_letters as d where d.attempts = 2 and d.last_error like '%answers others%'"); n != 1 {
					t.Errorf("%d dead letters after two attempts", n)
				}
			})
		}
	}
}
