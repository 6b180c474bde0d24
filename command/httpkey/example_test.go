package httpkey_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// A client that gets no response retries and gets the response of the first order.
func ExampleOnce() {
	example := &pgtest.Example{}
	defer example.End()
	pool := pawltest.DB(example, orders)
	// Use your authentication here.
	account := func(*http.Request) (string, error) { return "acme", nil }
	server := httptest.NewServer(httpkey.Once(pool, account, httpkey.Options{Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(r.Context(), "insert into orders (body) values ('shoes') returning id").Scan(&id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprintf(w, "order %d", id)
		return err
	}))
	defer server.Close()
	send := func(key, body string) {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode >= 400 {
			text = nil
		}
		fmt.Printf("%d %s, replayed: %q\n", response.StatusCode, text, response.Header.Get("Idempotent-Replayed"))
	}

	send(`"key-1"`, "shoes")
	send(`"key-1"`, "shoes")
	send(`"key-1"`, "a hat")
	// Output:
	// 201 order 1, replayed: ""
	// 201 order 1, replayed: "true"
	// 422 , replayed: ""
}

// The handler charges a card with no transaction open. Commit then writes the order and stores the
// response. A retry gets the response, and does not charge again.
func ExampleLeased() {
	example := &pgtest.Example{}
	defer example.End()
	pool := pawltest.DB(example, orders)
	charges := 0
	// another system
	charge := func(context.Context) (string, error) { charges++; return "ch_1", nil }
	account := func(*http.Request) (string, error) { return "acme", nil }
	handler := httpkey.Leased(pool, account, httpkey.Lease{}, httpkey.Options{Hooks: silent}, func(w http.ResponseWriter, r *http.Request, a *httpkey.Attempt) error {
		receipt, err := charge(r.Context())
		if err != nil {
			return command.Unknown(err) // it may have been charged: an operator decides
		}
		return a.Commit(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			fmt.Fprintf(w, "charged: %s", receipt)
			_, err := tx.Exec(ctx, "insert into orders (body) values ('shoes')")
			return err
		})
	})
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("shoes"))
		r.Header.Set(httpkey.KeyHeader, `"key-1"`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	fmt.Println(charges, "charge")
	// Output:
	// 200 charged: ch_1
	// 200 charged: ch_1
	// 1 charge
}

// JSON decodes the request and encodes the response.
func ExampleJSON() {
	example := &pgtest.Example{}
	defer example.End()
	pool := pawltest.DB(example, orders)
	account := func(*http.Request) (string, error) { return "acme", nil }
	type item struct{ Item string }
	type order struct{ ID int64 }
	handler := httpkey.Once(pool, account, httpkey.Options{Hooks: silent}, httpkey.JSON(http.StatusCreated,
		func(r *http.Request, tx pgx.Tx, in item) (out order, err error) {
			return out, tx.QueryRow(r.Context(), "insert into orders (body) values ($1) returning id", in.Item).Scan(&out.ID)
		}))
	for i, body := range []string{`{"Item": "shoes"}`, `{"Item": 7}`} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set(httpkey.KeyHeader, fmt.Sprintf(`"key-%d"`, i))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 201 {"ID":1}
	// 400 {"type":"https://github.com/pawl-go/pawl/blob/main/docs/guides/http.md#request-unreadable","title":"The request cannot be read","status":400,"detail":"the field Item cannot be a JSON number","new_key_safe":false}
}

// The server is unavailable at first. The client retries with the key that it chose.
func ExampleRetryingClient() {
	keys := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys <- r.Header.Get(httpkey.KeyHeader); len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &httpkey.RetryingClient{}}
	response, err := client.Post(server.URL, "text/plain", strings.NewReader("shoes"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	first, second := <-keys, <-keys
	fmt.Println(response.StatusCode, first != "" && first == second)
	// Output: 200 true
}

var silent = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}

// Every problem names a section of the guide, and every section describes a problem.
func TestProblem_StandsInTheGuide(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guides/http.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)problemKind\{"([a-z-]+)", "[^"]+", (\d+),`).FindAllStringSubmatch(string(source), -1)
	for _, k := range kinds {
		_, section, found := strings.Cut(string(guide), "\n### "+k[1]+"\n")
		if status := k[2]; !found || k[1] != "answer-not-kept" && !strings.HasPrefix(strings.TrimSpace(section), status) {
			t.Errorf("the guide has no section %s that begins with %s", k[1], status)
		}
	}
	if sections := strings.Count(string(guide), "\n### "); len(kinds) < 10 || len(kinds) != sections {
		t.Errorf("%d kinds, %d sections", len(kinds), sections)
	}
}
