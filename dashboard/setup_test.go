package dashboard_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A bed is a database and its dashboard.
type bed struct {
	*testing.T
	pool *pgxpool.Pool
	user dashboard.User
	url  string // of the dashboard, with a slash at the end

	rolledFrom time.Time // see rolled
}

// operator is a user with all rights.
var operator = dashboard.User{Name: "ann@example.com", MayChange: true, MaySeePayloads: true}

// setup serves a dashboard below a path.
func setup(t *testing.T, path string, change func(*dashboard.Config)) *bed {
	t.Helper()
	b := &bed{T: t, pool: pawltest.DB(t), user: operator}
	c := dashboard.Config{Pool: b.pool, Operators: b.pool, Name: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Authorize: func(*http.Request) (dashboard.User, error) { return b.user, nil }}
	if change != nil {
		change(&c)
	}
	board, err := dashboard.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix(path, board))
	t.Cleanup(server.Close)
	b.url = server.URL + path + "/"
	return b
}

func (b *bed) exec(statement string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), statement, args...); err != nil {
		b.Fatal(err)
	}
}

// An answer is a response of the dashboard.
type answer struct {
	status int
	header http.Header
	body   string
}

// get requests a page. It asks again if the page says that the database was too slow.
func (b *bed) get(address string) (a answer) {
	b.Helper()
	patience.Until(b, "the database answers in time for "+address, func() bool {
		a = b.send(http.MethodGet, address, nil)
		return !strings.Contains(a.body, "this took too long and was stopped") && !strings.Contains(a.body, "no connection to the database in time")
	})
	return a
}

func (b *bed) post(address string, form url.Values) answer {
	b.Helper()
	return b.send(http.MethodPost, address, form, "Sec-Fetch-Site", "same-origin")
}

func (b *bed) send(method, address string, form url.Values, header ...string) answer {
	b.Helper()
	if form != nil {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	}
	return b.sendBody(method, address, strings.NewReader(form.Encode()), header...)
}

func (b *bed) sendBody(method, address string, content io.Reader, header ...string) answer {
	b.Helper()
	if !strings.Contains(address, "://") {
		address = b.url + address
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(b.Context()), method, address, content)
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

func one[T any](b *bed, query string, args ...any) (value T) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), query, args...).Scan(&value); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return value
}

func loggerTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
