//go:build proof

package postgres

import (
	"os"
	"path/filepath"
	"testing"
)

// A cache that lost a file or has corrupt content delays the start but does not fail it.
func TestStart_SurvivesARottenCache(t *testing.T) {
	t.Parallel()
	cache := shortDir(t)
	must(t, os.Chmod(cache, 0o755))
	o := Options{tune: tuning{cache: cache}}
	must(t, startServer(t, o).Stop())
	stored := func(name string) string {
		found, _ := filepath.Glob(filepath.Join(cache, "cluster-*", "cluster", name))
		if len(found) != 1 {
			t.Fatalf("found %v", found)
		}
		return found[0]
	}
	const unread = "base/1/PG_VERSION" // the server needs it only for connections to template1
	must(t, os.Remove(stored(unread)))
	s := startServer(t, o)
	if !exists(filepath.Join(s.DataDir(), unread)) {
		t.Error("started a copy that lacks a file")
	}
	must(t, s.Stop())

	control := stored("global/pg_control")
	info, err := os.Stat(control)
	must(t, err)
	must(t, os.WriteFile(control, make([]byte, info.Size()), 0o600))
	must(t, startServer(t, o).Stop())
}
