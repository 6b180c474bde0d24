package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// limit bounds each start, template and clone.
const limit = 2 * time.Minute

// A Template is a schema that test databases are cloned from.
type Template struct {
	// Name identifies the content. The same name must mean the same schema, across packages and
	// over time, so include a hash of the schema. It has 1 to 40 of a-z, 0-9 and underscore.
	Name string
	// Apply creates the schema in an empty database. It runs once per server and must not keep
	// conn. Nil leaves the database empty.
	Apply func(ctx context.Context, conn *pgx.Conn) error
}

// run distinguishes the databases of this process from others on the same server.
var (
	run      = randomHex()
	sequence atomic.Int64
)

func randomHex() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// URL returns the connection string of a database cloned from tpl. It is dropped after the test. If
// the test failed, it is kept and its URL is logged. Close your connections before the test ends,
// by tb.Cleanup at the latest.
func URL(tb testing.TB, tpl Template) string {
	tb.Helper()
	s, err := server()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	source, err := s.template(ctx, tpl)
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("pawl_test_%s_%d", run, sequence.Add(1))
	if err := s.clone(ctx, name, source); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.finish(tb, name) })
	return s.url(name)
}

// ServerURL returns the connection string of the server's maintenance database, for tests that
// create databases or roles. Remove what you create, because other packages may share the server.
func ServerURL(tb testing.TB) string {
	tb.Helper()
	s, err := server()
	if err != nil {
		tb.Fatal(err)
	}
	return s.url(s.maintenance)
}

// finish drops the database of a passed test and logs the URL of a failed test's database.
func (s *host) finish(tb testing.TB, name string) {
	tb.Helper()
	switch {
	case !tb.Failed() && s.private:
		go s.drop(name) // in the background: the server ends with this process
	case !tb.Failed():
		s.drop(name) // the server stays, and no other code drops the database
	case s.private:
		tb.Logf("database of this test, until the test binary ends: %s (set PAWL_TEST_DATABASE_URL to keep it longer)", s.url(name))
	default:
		tb.Logf("database of this test, kept: %s", redacted(s.url(name)))
	}
}

func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
