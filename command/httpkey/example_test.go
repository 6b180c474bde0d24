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
