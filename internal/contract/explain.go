package contract

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// ExplainRow is one row of explain.
type ExplainRow struct {
	At         *time.Time // null: no time is known
	Kind       string
	Scope, Key string // Scope empty: unknown
	Event      string
	Detail     json.RawMessage
	ReadAt     time.Time // the database's clock
}

// Explain calls pawl_v1.explain. An empty scope searches all scopes.
func Explain(ctx context.Context, db DB, key, scope string) ([]ExplainRow, error) {
	o := Options{}
	set(o, "scope", scope)
	return many(ctx, db, "explain", `select e.at, e.kind, coalesce(e.scope, ''), e.key, e.event, e.detail, pg_catalog.clock_timestamp()
  from pawl_v1.explain($1, $2::pg_catalog.jsonb) as e`, []any{key, o.text()}, func(row pgx.CollectableRow) (r ExplainRow, err error) {
		err = row.Scan(&r.At, &r.Kind, &r.Scope, &r.Key, &r.Event, &r.Detail, &r.ReadAt)
		return r, err
	})
}
