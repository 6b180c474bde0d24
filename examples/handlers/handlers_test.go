package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/examples/handlers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// prove proves a handler, and checks its tables with a query.
func prove(t *testing.T, handler consumer.TxHandler, body, query, want string, rows ...string) {
	t.Helper()
	p := pawltest.HandlerTest{Schema: append([]string{handlers.Schema}, rows...), Handler: handler,
		Delivery: pawl.Delivery{Key: "m-1", Payload: []byte(body)},
		Check: func(tb testing.TB, pool *pgxpool.Pool) {
			var got string
			if err := pool.QueryRow(context.Background(), query).Scan(&got); err != nil || got != want {
				tb.Errorf("the tables say %q, %v; want %q", got, err, want)
			}
		}}
	pawltest.Twice(t, p)
	pawltest.CrashEverywhere(t, p)
}

func TestMoveCase(t *testing.T) {
	t.Parallel()
	prove(t, consumer.HandleTx(handlers.MoveCase), `{"case": 7, "from": "new", "to": "open"}`,
		"select concat_ws(' ', c.status, a.was, a.now, a.message) from cases as c join case_audit as a on a.case_id = c.id", "open new open m-1",
		"insert into cases values (7, 'new')")
}

func TestWriteInvoice(t *testing.T) {
	t.Parallel()
	prove(t, consumer.HandleTx(handlers.WriteInvoice), `{"id": 17, "cents": 1250}`,
		"select concat_ws(' ', i.order_id, i.cents, (select count(*) from pawl.job as j where j.queue = 'mail')) from invoice as i", "17 1250 1")
}

// A mailer recognises keys, and fails after it has sent the first mail.
type mailer struct {
	mu    sync.Mutex
	sent  map[string]string
	calls int
}

func (m *mailer) Send(_ context.Context, key string, _ []byte) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls++; m.sent[key] == "" {
		m.sent[key] = fmt.Sprintf("mail %d", len(m.sent)+1)
		if len(m.sent) == 1 {
			return "", errors.New("timeout: nobody knows whether it was sent")
		}
	}
	return m.sent[key], nil
}

func TestNotify(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, handlers.Schema)
	m, box := &mailer{sent: map[string]string{}}, &pawltest.Source{}
	for n := range 5 {
		d := pawl.Delivery{Key: fmt.Sprint("n-", n), Payload: []byte("hello")}
		box.Send(d, d)
	}
	f, err := consumer.New(pool, consumer.Config{Name: "notifications", Source: box, RetryConcurrency: 1,
		Handler: handlers.Notify(m).With(consumer.Policy{Backoff: job.Backoff{Base: time.Millisecond}})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	patience.Until(t, "five messages are notified of, and ten deliveries are acknowledged", func() bool {
		var rows, keys int
		err := pool.QueryRow(t.Context(), "select count(*), count(distinct key) from notification").Scan(&rows, &keys)
		if err != nil || rows != keys {
			t.Fatalf("%d notifications of %d messages, %v", rows, keys, err)
		}
		return keys == 5 && box.Open() == 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(m.sent) != 5 || m.calls != 6 {
		t.Errorf("%d mails in %d calls", len(m.sent), m.calls)
	}
}

// Two migrations run at once, and one is killed while it works. One more runs afterwards. Every row
// is migrated once.
func TestNormalizeEmails(t *testing.T) {
	t.Parallel()
	const migrated = `create table migrated (id bigint not null);
create function note() returns trigger language plpgsql as $$ begin insert into migrated values (new.id); return new; end $$;
create trigger note after update on customer for each row execute function note()`
	pool := pawltest.DB(t, handlers.Schema, "insert into customer (email) select ' A' || g || '@Example.org' from generate_series(1, 3000) as g", migrated)
	victim, kill := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() { _, _ = handlers.NormalizeEmails(victim, pool) })
	both.Go(func() {
		for {
			if _, err := handlers.NormalizeEmails(t.Context(), pool); !errors.Is(err, handlers.ErrRunning) {
				if err != nil {
					t.Error(err)
				}
				return
			}
			kill()
		}
	})
	both.Wait()
	kill()
	if changed, err := handlers.NormalizeEmails(t.Context(), pool); err != nil || changed != 0 {
		t.Errorf("the last one changed %d, %v", changed, err)
	}
	var right, once int
	err := pool.QueryRow(t.Context(), `select (select count(*) from customer where email_normal = 'a' || id || '@example.org'),
 (select count(distinct id) from migrated) - (select count(*) from migrated)`).Scan(&right, &once)
	if err != nil || right != 3000 || once != 0 {
		t.Errorf("%d are right, %d too many, %v", right, -once, err)
	}
}
