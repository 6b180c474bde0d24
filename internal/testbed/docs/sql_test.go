package docs_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/pawltest"
)

var (
	sqlFence = regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$")
	sqlSpan  = regexp.MustCompile("`((?:select|with) [^`\n]+)`")
	// incomplete matches queries with parameters or variables.
	incomplete = regexp.MustCompile(`…|\.\.\.|\$\d|:\w|\\gset|\bp_[a-z]`)
	toExplain  = regexp.MustCompile(`(?is)^(?:select|with|insert|update|delete)\b`)
	sqlRemark  = regexp.MustCompile(`--.*`)
)

// PostgreSQL can plan the queries of each page, so the tables, columns and functions of Pawl in
// them exist. Queries on the reader's tables are skipped.
func TestSQL_OfPages(t *testing.T) {
	t.Parallel()
	pool, planned := pawltest.DB(t), 0
	for _, page := range files(t, ".md") {
		text := read(t, page)
		var queries []string
		for _, m := range sqlFence.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "$$") {
				continue // a function: its body runs where the page is tested
			}
			queries = append(queries, strings.Split(sqlRemark.ReplaceAllString(m[1], ""), ";")...)
		}
		for _, m := range sqlSpan.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			queries = append(queries, m[1])
		}
		for _, query := range queries {
			query = strings.TrimSpace(query)
			if !toExplain.MatchString(query) || incomplete.MatchString(strings.ReplaceAll(query, "::", "")) {
				continue
			}
			_, err := pool.Exec(t.Context(), "explain "+query)
			var said *pgconn.PgError
			switch {
			case err == nil:
				planned++
			case errors.As(err, &said) && (said.Code == "42P01" || said.Code == "42883" || said.Code == "3F000") && !strings.Contains(said.Message, "pawl"):
			default:
				t.Errorf("%s: %v:\n%s", page, err, query)
			}
		}
	}
	if planned < 60 {
		t.Errorf("only %d queries were planned", planned)
	}
}
