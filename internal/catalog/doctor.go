package catalog

import (
	"context"
	"embed"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The queries of package doctor, one a file. They return facts, and the doctor phrases them.
//
//go:embed doctor/*.sql
var doctorFiles embed.FS

// Facts runs a query of the doctor, named by its file. It returns each row as the values of its
// columns, as in JSON: a time is text, a number is an int64 or a float64.
func Facts(ctx context.Context, db DB, query string, args ...any) ([]map[string]any, error) {
	text, err := doctorFiles.ReadFile("doctor/" + query + ".sql")
	if err != nil {
		return nil, err
	}
	inner := strings.ReplaceAll(string(text), "/* presence free */", PresenceFree)
	return Look(ctx, db, "doctor."+query, "select to_jsonb(r)::text\n  from (\n"+inner+") as r", args, func(row pgx.CollectableRow) (map[string]any, error) {
		var object string
		if err := row.Scan(&object); err != nil {
			return nil, err
		}
		return factOf(object)
	})
}

func factOf(object string) (fact map[string]any, err error) {
	decoder := json.NewDecoder(strings.NewReader(object))
	decoder.UseNumber()
	err = decoder.Decode(&fact)
	for name, value := range fact {
		if n, is := value.(json.Number); is {
			if fact[name], err = n.Int64(); err != nil {
				fact[name], err = n.Float64()
			}
		}
	}
	return fact, err
}
