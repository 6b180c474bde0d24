package contract

import (
	"context"
	"time"
)

// GatePassArgs are the arguments of sequence_gate_pass.
type GatePassArgs struct {
	Consumer, Resource string
	Seq                int64
	Mode               string // "latest" or "strict"
	First              *int64
	HoldLimit          int
}

// GatePassRow is the result of sequence_gate_pass.
type GatePassRow struct {
	Outcome  string // "passed", "stale", "early" or "full"
	Last     *int64 // the last number that took effect; null if none
	NextHeld *int64 // the lowest number held; null if none
}

// GatePass calls pawl_v1.sequence_gate_pass.
func GatePass(ctx context.Context, db DB, a GatePassArgs) (r GatePassRow, err error) {
	o := Options{"mode": a.Mode}
	set(o, "hold_limit", a.HoldLimit)
	if a.First != nil {
		o["first"] = *a.First
	}
	err = one(ctx, db, "gate.pass", "select p.outcome, p.last, (p.detail operator(pg_catalog.->>) 'next_held')::bigint from pawl_v1.sequence_gate_pass($1, $2, $3, $4::pg_catalog.jsonb) as p",
		[]any{a.Consumer, a.Resource, a.Seq, o.text()}, &r.Outcome, &r.Last, &r.NextHeld)
	return r, err
}

// GateHold calls pawl_v1.sequence_gate_hold.
func GateHold(ctx context.Context, db DB, consumer, resource string, seq, jobID int64) error {
	return one(ctx, db, "gate.hold", "select h.outcome from pawl_v1.sequence_gate_hold($1, $2, $3, $4) as h", []any{consumer, resource, seq, jobID}, new(string))
}

// GateHoldAgain calls pawl_v1.sequence_gate_hold_again and returns the job that now holds the
// delivery.
func GateHoldAgain(ctx context.Context, db DB, consumer, resource string, seq int64, messageID string, jobID int64, retryIn time.Duration) (copied int64, err error) {
	o := Options{}
	set(o, "retry_in_ms", retryIn.Milliseconds())
	err = one(ctx, db, "gate.hold", "select h.job_id from pawl_v1.sequence_gate_hold_again($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as h",
		[]any{consumer, resource, seq, messageID, jobID, o.text()}, &copied)
	return copied, err
}

// GateOperateRow is the result of sequence_gate_reset and sequence_gate_release.
type GateOperateRow struct {
	Outcome string
	Before  *int64
	Last    *int64 // of sequence_gate_release
}

// GateReset calls pawl_v1.sequence_gate_reset.
func GateReset(ctx context.Context, db DB, consumer, resource string, last int64, from *int64, actor, reason string) (r GateOperateRow, err error) {
	o := Options{}
	if from != nil {
		o["from"] = *from
	}
	err = one(ctx, db, "gate.reset", "select r.outcome, (r.detail operator(pg_catalog.->>) 'before')::bigint from pawl_v1.sequence_gate_reset($1, $2, $3, $4, $5, $6::pg_catalog.jsonb) as r",
		[]any{consumer, resource, last, actor, reason, o.text()}, &r.Outcome, &r.Before)
	return r, err
}

// GateRelease calls pawl_v1.sequence_gate_release.
func GateRelease(ctx context.Context, db DB, consumer, resource string, nextHeld *int64, actor, reason string) (r GateOperateRow, err error) {
	o := Options{}
	if nextHeld != nil {
		o["next_held"] = *nextHeld
	}
	err = one(ctx, db, "gate.release",
		"select r.outcome, (r.detail operator(pg_catalog.->>) 'before')::bigint, (r.detail operator(pg_catalog.->>) 'last')::bigint from pawl_v1.sequence_gate_release($1, $2, $3, $4, $5::pg_catalog.jsonb) as r",
		[]any{consumer, resource, actor, reason, o.text()}, &r.Outcome, &r.Before, &r.Last)
	return r, err
}
