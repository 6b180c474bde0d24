package contract

import (
	"context"
	"time"
)

// PurgeArgs are the arguments of purges by age.
type PurgeArgs struct {
	Consumer  string        // of inbox and delivery
	OlderThan time.Duration // of command, job_key and effect: negative for the function's default
	Limit     int
	Since     string // PurgeRow.Next of the previous call

	Unreported bool // of inbox
}

// PurgeRow is the result of a purge by age.
type PurgeRow struct {
	Purged int
	Kept   int    // keys whose jobs have not ended
	Next   string // for option since; empty if nothing was found
}

// JobKeyPurge calls pawl_v1.job_key_purge.
func JobKeyPurge(ctx context.Context, db DB, a PurgeArgs) (PurgeRow, error) {
	return a.byEnd(ctx, db, "job_key")
}

// CommandPurge calls pawl_v1.command_purge.
func CommandPurge(ctx context.Context, db DB, a PurgeArgs) (PurgeRow, error) {
	return a.byEnd(ctx, db, "command")
}

// StepPurge calls pawl_v1.step_purge.
func StepPurge(ctx context.Context, db DB, a PurgeArgs) (PurgeRow, error) {
	return a.byEnd(ctx, db, "step")
}

// InboxPurge calls pawl_v1.inbox_purge.
func InboxPurge(ctx context.Context, db DB, a PurgeArgs) (PurgeRow, error) {
	return a.ofConsumer(ctx, db, "inbox")
}

// DeliveryPurge calls pawl_v1.delivery_purge.
func DeliveryPurge(ctx context.Context, db DB, a PurgeArgs) (PurgeRow, error) {
	return a.ofConsumer(ctx, db, "delivery")
}

// byEnd purges a table whose rows store when they expire.
func (a PurgeArgs) byEnd(ctx context.Context, db DB, table string) (PurgeRow, error) {
	o := olderThanOption(a.OlderThan)
	set(o, "since", a.Since)
	return purge(ctx, db, table, "_purge($1, $2::pg_catalog.jsonb)", a.Limit, o.text())
}

// ofConsumer purges a table whose rows belong to a consumer.
func (a PurgeArgs) ofConsumer(ctx context.Context, db DB, table string) (PurgeRow, error) {
	o := Options{}
	set(o, "since", a.Since)
	setUnreported(o, a.Unreported && table == "inbox")
	return purge(ctx, db, table, "_purge($1, $2, $3, $4::pg_catalog.jsonb)", a.Consumer, a.OlderThan.Milliseconds(), a.Limit, o.text())
}

func purge(ctx context.Context, db DB, table, call string, args ...any) (r PurgeRow, err error) {
	err = one(ctx, db, table+".purge", "select p.purged, coalesce((p.detail operator(pg_catalog.->>) 'kept')::int, 0), coalesce(p.detail operator(pg_catalog.->>) 'next', '') from pawl_v1."+table+call+" as p",
		args, &r.Purged, &r.Kept, &r.Next)
	return r, err
}

// ReplayPurge calls pawl_v1.replay_purge.
func ReplayPurge(ctx context.Context, db DB, olderThan time.Duration, limit int) (purged int, err error) {
	err = one(ctx, db, "replay.purge", "select p.purged from pawl_v1.replay_purge($1, $2) as p", []any{olderThan.Milliseconds(), limit}, &purged)
	return purged, err
}

// FencePurge calls pawl_v1.fence_purge.
func FencePurge(ctx context.Context, db DB, olderThan time.Duration, limit int) (purged int, err error) {
	err = one(ctx, db, "fence.purge", "select p.purged from pawl_v1.fence_purge($1, $2) as p", []any{olderThan.Milliseconds(), limit}, &purged)
	return purged, err
}

// PurgeCount calls pawl_v1.purge_count. A negative OlderThan means the default of the table's
// purge. Limit and Since are unused.
func PurgeCount(ctx context.Context, db DB, table string, a PurgeArgs) (due int64, err error) {
	err = one(ctx, db, "purge.count", "select c.due from pawl_v1.purge_count($1, $2::pg_catalog.jsonb) as c", []any{table, a.rule().text()}, &due)
	return due, err
}

// PurgeAudit calls pawl_v1.purge_audit. With rows nil it only checks the arguments. Limit and Since
// are unused.
func PurgeAudit(ctx context.Context, db DB, table string, a PurgeArgs, rows *int, actor, reason string) error {
	var outcome string
	return one(ctx, db, "purge.audit", "select r.outcome from pawl_v1.purge_audit($1, $2, $3, $4, $5::pg_catalog.jsonb) as r",
		[]any{table, rows, actor, reason, a.rule().exact()}, &outcome)
}

// rule returns the arguments of a purge beside its table.
func (a PurgeArgs) rule() Options {
	o := olderThanOption(a.OlderThan)
	set(o, "consumer", a.Consumer)
	setUnreported(o, a.Unreported)
	return o
}

func setUnreported(o Options, unreported bool) {
	if unreported {
		o["unreported"] = true
	}
}

func olderThanOption(olderThan time.Duration) Options {
	o := Options{}
	if olderThan >= 0 {
		o["older_than_ms"] = olderThan.Milliseconds()
	}
	return o
}
