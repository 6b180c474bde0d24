package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// Rows that a function leaves open are closed with its *sql.Tx. If closing takes too long, the
// attempt is lost and does not hang. It takes long if the server sends the rows slowly, or if
// database/sql waits for a holder of raw bytes.
func TestLendSQL_RowsThatDoNotClose(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, rows)
	for name, leave := range map[string]withSQL{
		"more rows to come": func(_ context.Context, tx *sql.Tx) error {
			open, err := tx.QueryContext(context.Background(), "select repeat('x', 100000), case when g > 3 then pg_sleep(60)::text end from generate_series(1, 9) as g")
			if err == nil && !open.Next() {
				err = errors.New("no row")
			}
			return err
		},
		"raw octets": func(ctx context.Context, tx *sql.Tx) error {
			open, err := tx.QueryContext(ctx, "select g::text from generate_series(1, 10) as g")
			if err != nil || !open.Next() {
				return errors.Join(err, errors.New("no row"))
			}
			var raw sql.RawBytes
			return open.Scan(&raw)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			go func() {
				tx, err := txn.Opener{Pool: pool, SQL: true}.Open(t.Context(), "x.begin", "", time.Minute, queued("insert into mark values (1)"))
				if err != nil {
					ended <- err
					return
				}
				err = tx.Guard(t.Context(), time.Second, func(ctx context.Context, tx pgx.Tx) error { return lent(leave)(ctx, tx) })
				txn.Rollback(t.Context(), tx)
				ended <- err
			}()
			if err := patience.Receive(t, "it does not hang", ended); !errors.Is(err, txn.ErrLost) {
				t.Errorf("%v", err)
			}
		})
	}
}
