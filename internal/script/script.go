// Package script wraps the statements that install Pawl's schema, for the packages that hold them and run them.
package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Hash identifies the functions of a build.
func Hash(api string) string {
	sum := sha256.Sum256([]byte(api))
	return hex.EncodeToString(sum[:])
}

// ReplaceAPI returns the statements that put functions in the place of those that version v installed.
func ReplaceAPI(api string, v int) string {
	return Pinned(api + fmt.Sprintf("update pawl.migration as m set api_hash = '%s' where m.version = %d;\n", Hash(api), v))
}

// Pinned resolves the names in a script to PostgreSQL's own, whatever the session's search_path holds, and puts that back: a
// migration tool writes its own record in the same transaction. See docs/decisions/0035-search-path.md.
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
