package consumer_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
)

func applySQL(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
	_, err := tx.ExecContext(ctx, "insert into effect (key, body) values ($1, $2)", d.Key, string(d.Payload))
	return err
}

// Above READ COMMITTED, handlers that change one row lose races and run again in another
// transaction. Each delivery takes effect once in every form for database/sql.
func TestConsumer_SQLAboveReadCommitted(t *testing.T) {
	t.Parallel()
	count := func(ctx context.Context, tx *sql.Tx, d pawl.Delivery) error {
		if err := applySQL(ctx, tx, d); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "update total set n = n + 1")
		return err
	}
	for name, set := range map[string]func(*form){
		"one":   func(f *form) { f.sql = count },
		"store": func(f *form) { f.sql, f.Mode = count, consumer.StoreFirst },
		"many": func(f *form) {
			f.batchSize = 10
			f.manySQL = func(ctx context.Context, tx *sql.Tx, ds []pawl.Delivery) error {
				for _, d := range ds {
					if err := count(ctx, tx, d); err != nil {
						return err
					}
				}
				return nil
			}
		},
		"attempt": func(f *form) {
			f.work = func(ctx context.Context, a *consumer.Attempt[[]byte]) error {
				return a.CommitSQL(ctx, func(ctx context.Context, tx *sql.Tx) error { return count(ctx, tx, a.Delivery) })
			}
		},
	} {
		for _, level := range []string{"repeatable%20read", "serializable"} {
			t.Run(name+" "+level, func(t *testing.T) {
				t.Parallel()
				b := setupOn(t, pawltest.URL(t, effects, "create table total (n int not null)", "insert into total values (0)")+"&default_transaction_isolation="+level)
				b.form.handle = nil
				set(&b.form)
				for n := range 40 {
					b.source.Send(order(n), order(n))
				}
				stop := b.start()
				b.until("all acknowledged", func() bool { return b.source.Open() == 0 })
				b.until("all retries ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
				stop()
				b.wantEffects(40)
				if n := b.count("select n from total"); n != 40 {
					t.Errorf("the total is %d of 40", n)
				}
			})
		}
	}
}
