package cli

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/operator"
)

// selfMade are commands that change something and are not verbs about one thing.
var selfMade = []string{"purge"}

// Each verb of the table is a command and a page of the dashboard, with the same texts and fields.
// No command outside of the table changes anything.
func TestVerbs_AreCommandsAndPages(t *testing.T) {
	t.Parallel()
	root, board := newRoot(), offline(t)
	known := map[string]bool{}
	for _, v := range operator.All() {
		path := v.Noun.Group + " " + v.Command
		known[path], known["dlq "+v.Command] = true, known["dlq "+v.Command] || v.Jobs != nil
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 || cmd.RunE == nil {
			t.Errorf("%s: there is no command %s", v.Name, path)
			continue
		}
		if help := strings.Join(strings.Fields(cmd.Long), " "); !strings.Contains(help, v.Effect) {
			t.Errorf("pawl %s --help does not say %q:\n%s", path, v.Effect, help)
		}
		if asks := cmd.Flags().Lookup("yes") != nil; asks != (v.Warning != "" || v.Doubles) {
			t.Errorf("pawl %s asks: %v, but its warning is %q", path, asks, v.Warning)
		}
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("pawl %s has no example, or no short text", path)
		}
		page := get(board, "/do/"+v.Name+"?"+url.Values{v.Noun.Fields[0].Name: {"1"}}.Encode())
		if !strings.Contains(page, html.EscapeString(v.Effect)) || !strings.Contains(page, html.EscapeString(v.Title)) {
			t.Errorf("the page of %s does not say %q:\n%s", v.Name, v.Effect, page)
		}
		for _, f := range v.Fields() {
			if flag := cmd.Flags().Lookup(f.Flag); f.Flag != "" && (flag == nil || flag.Usage != f.Label) {
				t.Errorf("pawl %s has no flag --%s for %q", path, f.Flag, f.Label)
			}
			if f.Usage() != "" && !strings.Contains(strings.ReplaceAll(cmd.Use, "[", ""), " "+f.Usage()) {
				t.Errorf("pawl %s does not take %s", cmd.Use, f.Usage())
			}
			if asked := strings.Contains(page, `name="`+f.Name+`"`); asked == f.FlagOnly {
				t.Errorf("the page of %s asks for %s: %v", v.Name, f.Name, asked)
			}
		}
	}
	for _, cmd := range runnable(root) {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		if cmd.Flags().Lookup("reason") != nil && !known[path] && !slices.Contains(selfMade, path) {
			t.Errorf("pawl %s changes something and is not in the table", path)
		}
	}
}

// offline is a dashboard that never queries its database.
func offline(t *testing.T) http.Handler {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://u@127.0.0.1:1/d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	board, err := dashboard.New(dashboard.Config{Pool: pool, Operators: pool,
		Authorize: func(*http.Request) (dashboard.User, error) { return dashboard.User{Name: "ann", MayChange: true}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return board
}

func get(h http.Handler, address string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
	return w.Body.String()
}
