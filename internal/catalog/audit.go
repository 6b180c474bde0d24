package catalog

import "context"

// AuditQuery selects rows of pawl.audit. A zero field matches all.
type AuditQuery struct {
	Actor, Verb string
	Page        // After is the id of the previous row, which is newer
}

// Audit reads pawl.audit, newest row first.
func Audit[T any](ctx context.Context, db DB, a AuditQuery) ([]T, error) {
	q := &query{from: "pawl.audit as r"}
	if a.After != nil {
		q.only("r.id < %s::text::bigint", a.After[0])
	}
	q.equal("r.actor", a.Actor)
	q.equal("r.verb", a.Verb)
	text := q.limited(a.Page, "r.id desc")
	return lookRows[T](ctx, db, "audit.list", text, q.args...)
}

// Changes reads the newest audit rows about one thing, at most limit, oldest first.
func Changes[T any](ctx context.Context, db DB, limit int, kind string, names ...string) ([]T, error) {
	return lookRows[T](ctx, db, "audit.list", `(
  select a.id, a.at, a.actor, a.verb, a.target, a.reason, a.before, a.after
    from pawl.audit as a
   where a.target = pawl_v1._audit_target($1, variadic $3::text[])
   order by a.id desc
   limit $2
  ) as r
 order by r.id`, kind, limit, names)
}
