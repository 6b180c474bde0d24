// Package script wraps the statements that install Pawl's schema, for packages schema and migrate.
package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Hash identifies the SQL functions of a build. Lines that begin with -- do not count: they are the
// comments outside of the functions, which the database does not store.
func Hash(api string) string {
	sum := sha256.New()
	for line := range strings.Lines(api) {
		if !strings.HasPrefix(line, "--") {
			sum.Write([]byte(line))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// ReplaceAPI returns the statements that replace the functions that version v installed.
func ReplaceAPI(api string, v int) string {
	return Pinned(api + fmt.Sprintf("update pawl.migration as m set api_hash = '%s' where m.version = %d;\n", Hash(api), v))
}

// Pinned makes names in a script resolve to PostgreSQL's own, with any search_path of the session.
// It restores search_path, because a migration tool writes its own record in the same transaction.
// See docs/decisions/0035-search-path.md.
func Pinned(script string) string {
	return `do $$
begin
  perform pg_catalog.set_config('pawl.search_path', pg_catalog.current_setting('search_path'), true),
          pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
end
$$;

` + script + `
do $$
begin
  perform pg_catalog.set_config('search_path', pg_catalog.current_setting('pawl.search_path'), true);
end
$$;
`
}
