package catalog

import "context"

// CommandQuery selects rows of pawl.command. A zero field matches all.
type CommandQuery struct {
	Scope    string
	Statuses []string
	Stale    bool // only rows of pawl_v1.stale_commands
	Page
}

const commands = `(
  select c.*, encode(c.hash, 'hex') as fingerprint, octet_length(c.response_body) as response_octets, octet_length(c.result) as result_octets,
         c.status = 'unknown' or c.status = 'processing' and coalesce(c.lease_expires_at, '-infinity') < clock_timestamp() as stale
    from pawl.command as c
  ) as r`

// Commands reads pawl.command, ordered by scope and key.
func Commands[T any](ctx context.Context, db DB, a CommandQuery) ([]T, error) {
	q := &query{from: commands}
	q.equal("r.scope", a.Scope)
	q.among("r.status", a.Statuses)
	if a.Stale {
		q.also("exists (select from pawl_v1.stale_commands as s where s.scope = r.scope and s.key = r.key)")
	}
	return readPage[T](ctx, db, "command.list", q, a.Page, key{"scope", "text"}, key{"key", "text"})
}

// Command reads one command. It returns no row if the command does not exist.
func Command[T any](ctx context.Context, db DB, scope, key string) ([]T, error) {
	return lookWhole[T](ctx, db, "command.get", commands+" where r.scope = $1::text and r.key = $2::text", scope, key)
}
