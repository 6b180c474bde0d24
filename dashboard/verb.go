package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/ops"
)

// What actions need beside a reason.
var (
	referenceField = field{Name: "reference", Label: "the provider's reference, if it was executed"}
	outcomeField   = field{Name: "outcome", Label: "what the provider answered", Options: []string{"executed", "refused", "not_executed"}}
	policyField    = field{Name: "policy", Label: "what a dead letter does that has the turn", Options: []string{"block", "park", "skip"}}
)

// actions are all verbs of package ops about one thing.
var actions = []action{
	{name: "job_retry", title: "Retry", names: []string{"id", "fence"}, what: theJob, back: toJob,
		effect: "The job becomes due now, with all its attempts before it. Its handler runs again. What an earlier attempt did outside of the database may happen a second time, unless it was a step.",
		do:     onJob(ops.JobRef.Retry)},
	{name: "job_cancel", title: "Cancel", danger: true, names: []string{"id", "fence"}, what: theJob, back: toJob,
		effect: "The job ends without success, and stays to be retried or discarded. A running attempt cannot commit any more. What it did outside of the database cannot be called back.",
		do:     onJob(ops.JobRef.Cancel)},
	{name: "job_discard", title: "Discard", danger: true, names: []string{"id", "fence"}, what: theJob, back: toJob,
		effect: "The job is deleted, with its payload and its errors. That cannot be undone. A copy that comes under its key is still a duplicate.",
		do:     onJob(ops.JobRef.Discard)},
	{name: "lane_unblock", title: "Go on without it", danger: true, names: []string{"queue", "name", "head"}, what: theLane, back: toLane,
		effect: "The lane goes on with the next job. The job that blocked it stays, and loses its place: if it is retried later, it runs out of order.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			head, err := p.number("head")
			if err != nil {
				return ops.Result{}, err
			}
			return ops.LaneRef{Queue: p("queue"), Name: p("name"), Head: head}.Unblock(ctx, db, by)
		}},
	{name: "lane_policy", title: "Set the policy", names: []string{"queue", "name"}, inputs: []field{policyField}, what: theLane, back: toLane,
		effect: "From now on a dead letter that has the turn blocks the lane, is parked so that its lane waits no longer, or is skipped. A dead letter that blocks it already stays.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			return ops.LaneRef{Queue: p("queue"), Name: p("name")}.SetPolicy(ctx, db, p("policy"), by)
		}},
	{name: "queue_pause", title: "Pause", danger: true, names: []string{"name"}, what: theQueue, back: toQueue,
		effect: "Workers claim nothing of the queue until it is resumed. Attempts that are running go on to their end, and jobs can be enqueued.",
		do:     onQueue(ops.QueueRef.Pause)},
	{name: "queue_drain", title: "Drain", names: []string{"name"}, what: theQueue, back: toQueue,
		effect: "Workers claim only what was tried before and is to be tried again. New jobs wait.",
		do:     onQueue(ops.QueueRef.Drain)},
	{name: "queue_resume", title: "Resume", names: []string{"name"}, what: theQueue, back: toQueue,
		effect: "Workers claim all that is due. What has waited meanwhile comes at once.",
		do:     onQueue(ops.QueueRef.Resume)},
	{name: "queue_archive_on", title: "Keep finished jobs", names: []string{"name"}, what: theQueue, back: toQueue,
		effect: "Finished jobs are kept for seven days, payloads included. To finish a job then costs two to three times as much.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			return ops.QueueRef{Name: p("name")}.SetArchive(ctx, db, true, by)
		}},
	{name: "queue_archive_off", title: "Delete finished jobs", danger: true, names: []string{"name"}, what: theQueue, back: toQueue,
		effect: "From now on finished jobs are deleted. What is in the archive stays there until it is seven days old.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			return ops.QueueRef{Name: p("name")}.SetArchive(ctx, db, false, by)
		}},
	{name: "schedule_pause", title: "Pause", danger: true, names: []string{"name"}, what: theSchedule, back: toSchedule,
		effect: "The schedule enqueues nothing until it is resumed, also what is due already.", do: onSchedule(ops.ScheduleRef.Pause)},
	{name: "schedule_resume", title: "Resume", names: []string{"name"}, what: theSchedule, back: toSchedule,
		effect: "The schedule goes on with its next tick from now on. Ticks that were missed meanwhile are dropped.", do: onSchedule(ops.ScheduleRef.Resume)},
	{name: "schedule_run_now", title: "Run now", names: []string{"name", "record"}, what: theSchedule, back: toSchedule,
		effect: "One job is enqueued, beside the plan. To enqueue another one, come here again.", do: runNow},
	{name: "schedule_delete", title: "Delete", danger: true, names: []string{"name"}, what: theSchedule, back: toSchedule,
		effect: "The schedule is deleted. A program that still puts it makes it anew when it starts, and may then enqueue at once: pause it instead.", do: onSchedule(ops.ScheduleRef.Delete)},
	{name: "inbox_replay", title: "Replay", names: []string{"consumer", "key", "processed_at"}, what: theDelivery, back: toDelivery,
		effect: "If the delivery has not taken effect, it is tried again. If it has, nothing happens: it goes through the inbox like every delivery.", do: onDelivery(ops.DeliveryRef.Replay)},
	{name: "inbox_forget", title: "Forget", danger: true, names: []string{"consumer", "key", "processed_at"}, what: theDelivery, back: toDelivery,
		effect: "The delivery is forgotten. When the same message comes again, it runs as new: its effect may then be there twice.", do: onDelivery(ops.DeliveryRef.Forget)},
	{name: "command_settle", title: "Say what happened", names: []string{"scope", "key", "fence"}, what: theCommand, back: toCommand, inputs: []field{
		{Name: "executed", Label: "did it take effect?", Options: []string{"executed", "not_executed"}}, {Name: "ref_type", Label: "type of what was made (optional)"}, {Name: "ref_id", Label: "its id (optional)"}},
		effect: "If you say that it was not executed, and it was, the next call with the key takes effect a second time. If you say that it was, and it was not, it never takes effect.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			fence, err := p.number("fence")
			if err != nil {
				return ops.Result{}, err
			}
			if said := p("executed"); said != "executed" && said != "not_executed" {
				return ops.Result{}, badParameter{"executed", said, "executed or not_executed"}
			}
			return ops.CommandRef{Scope: p("scope"), Key: p("key"), Fence: fence}.Settle(ctx, db,
				ops.CommandVerdict{Executed: p("executed") == "executed", RefType: p("ref_type"), RefID: p("ref_id")}, by)
		}},
	{name: "step_settle", title: "Say what the provider answered", names: []string{"scope", "key", "step", "fence"}, inputs: []field{outcomeField, referenceField}, what: theStep, back: toStep,
		effect: "If you say not_executed, the call is made again. If the provider did execute it, that is a second effect: a second charge.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			fence, err := p.number("fence")
			if err != nil {
				return ops.Result{}, err
			}
			return p.step(fence).Settle(ctx, db, ops.StepVerdict{Outcome: p("outcome"), Reference: p("reference")}, by)
		}},
	{name: "step_again", title: "Call again under a new key", danger: true, names: []string{"scope", "key", "step", "fence"}, what: theStep, back: toStep,
		inputs: []field{{Name: "provider_key", Label: "new idempotency key (empty: a random one)"}},
		effect: "The provider refused the call for good. It is called again under a new key at the next attempt of its owner. If the provider took the first call after all, this is a second effect.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			fence, err := p.number("fence")
			if err != nil {
				return ops.Result{}, err
			}
			return p.step(fence).Again(ctx, db, p("provider_key"), by)
		}},
	{name: "sequence_gate_release", title: "Give up what is missing", danger: true, names: []string{"consumer", "resource", "next_held"}, what: theGate, back: toGate,
		effect: "The numbers that are missing before the lowest held one are given up. If one of them comes after all, it is dropped.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			next, err := p.maybe("next_held")
			if err != nil {
				return ops.Result{}, err
			}
			return ops.SequenceGateRef{Consumer: p("consumer"), Resource: p("resource"), NextHeld: next}.Release(ctx, db, by)
		}},
	{name: "sequence_gate_reset", title: "Set its number", danger: true, names: []string{"consumer", "resource", "last"}, what: theGate, back: toGate,
		inputs: []field{{Name: "to", Label: "last number that took effect"}},
		effect: "The gate expects the number after this one. If you set it back, numbers that took effect can take effect again.",
		do: func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
			to, err := strconv.ParseInt(p("to"), 10, 64)
			if err != nil {
				return ops.Result{}, badParameter{"to", p("to"), "a whole number"}
			}
			ref := ops.SequenceGateRef{Consumer: p("consumer"), Resource: p("resource")}
			if p("last") == "none" {
				return asSeen(ctx, db, func(db pawl.DB) (ops.Result, error) { return ref.Reset(ctx, db, to, by) },
					func(_ pawl.DB, r ops.Result) (bool, error) { return r.Was == "", nil })
			}
			last, err := strconv.ParseInt(p("last"), 10, 64)
			if err != nil {
				return ops.Result{}, badParameter{"last", p("last"), "a whole number or none, as the page that led here has it"}
			}
			ref.Last = &last
			return ref.Reset(ctx, db, to, by)
		}},
}

// The verbs that a thing allows as it stands.

func jobVerbs(j ops.Job) []call {
	names := []any{"id", j.ID, "fence", j.Fence}
	switch j.Status {
	case ops.StatusProcessing, ops.StatusWaiting:
		return []call{{"job_cancel", names}}
	case ops.StatusDeadLetter, ops.StatusCancelled:
		return []call{{"job_retry", names}, {"job_discard", names}}
	case ops.StatusPending:
		return []call{{"job_retry", names}, {"job_cancel", names}, {"job_discard", names}}
	}
	return nil // unknown: its step needs a verdict
}

func laneVerbs(l ops.Lane) (all []call) {
	names := []any{"queue", l.Queue, "name", l.Name}
	if l.Blocked() {
		all = append(all, call{"lane_unblock", append(names[:4:4], "head", l.Head)})
	}
	return append(all, call{"lane_policy", names})
}

func queueVerbs(q ops.Queue) (all []call) {
	names := []any{"name", q.Name}
	if q.Mode != ops.QueueRunning {
		all = append(all, call{"queue_resume", names})
	}
	if q.Mode != ops.QueueDraining {
		all = append(all, call{"queue_drain", names})
	}
	if q.Mode != ops.QueuePaused {
		all = append(all, call{"queue_pause", names})
	}
	if q.Archive {
		return append(all, call{"queue_archive_off", names})
	}
	return append(all, call{"queue_archive_on", names})
}

func scheduleVerbs(s ops.Schedule) []call {
	names := []any{"name", s.Name}
	first := call{"schedule_pause", names}
	if s.Paused {
		first = call{"schedule_resume", names}
	}
	return []call{first, {"schedule_run_now", append(names[:2:2], "record", lastRecord(s.Changes))}, {"schedule_delete", names}}
}

func deliveryVerbs(d ops.Delivery) []call {
	names := []any{"consumer", d.Consumer, "key", d.Key, "processed_at", "none"}
	if !d.ProcessedAt.IsZero() {
		names[5] = d.ProcessedAt.Format(time.RFC3339Nano)
	}
	return []call{{"inbox_replay", names}, {"inbox_forget", names}}
}

func commandVerbs(c ops.Command) []call {
	if c.Status != ops.StatusUnknown {
		return nil
	}
	return []call{{"command_settle", []any{"scope", c.Scope, "key", c.Key, "fence", c.Fence}}}
}

func stepVerbs(s ops.Step) []call {
	names := []any{"scope", s.Scope, "key", s.Key, "step", s.Step, "fence", s.Fence}
	switch s.Status {
	case ops.StatusUnknown:
		return []call{{"step_settle", names}}
	case ops.StatusFailedFinal:
		return []call{{"step_again", names}}
	}
	return nil
}

func gateVerbs(g ops.SequenceGate) (all []call) {
	names := []any{"consumer", g.Consumer, "resource", g.Resource}
	if g.NextHeld != nil {
		all = append(all, call{"sequence_gate_release", append(names[:4:4], "next_held", *g.NextHeld)})
	}
	last := any("none")
	if g.Last != nil {
		last = *g.Last
	}
	return append(all, call{"sequence_gate_reset", append(names[:4:4], "last", last)})
}

// lastRecord is the id of the newest record of what was done with a thing by hand; 0: nothing was.
func lastRecord(all []ops.Change) int64 {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].ID
}

var errMoved = errors.New("it is not as it was seen")

// asSeen runs a verb that has no such check of its own, and takes it back if the thing was not as it was seen. The verb holds the thing's lock
// meanwhile, so of two at once the second sees what the first did.
func asSeen(ctx context.Context, db pawl.DB, verb func(pawl.DB) (ops.Result, error), same func(pawl.DB, ops.Result) (bool, error)) (r ops.Result, err error) {
	pool, is := db.(*pgxpool.Pool)
	if !is {
		return r, fmt.Errorf("%T cannot begin a transaction", db)
	}
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if r, err = verb(tx); err != nil || !r.Changed() {
			return err
		}
		is, err := same(tx, r)
		if err == nil && !is {
			err = errMoved
		}
		return err
	})
	conns.LeaveStandby(pool, err)
	if errors.Is(err, errMoved) {
		return ops.Result{Outcome: ops.Moved, DryRun: r.DryRun, Was: r.Was, Hint: "it was changed since you looked, or this form was sent already: go back and look again"}, nil
	}
	return r, err
}

// runNow enqueues a job of a schedule, unless something was done with it by hand since it was looked at: a form that is sent twice enqueues one.
func runNow(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
	seen, err := strconv.ParseInt(p("record"), 10, 64)
	if err != nil {
		return ops.Result{}, badParameter{"record", p("record"), "a whole number, as the page that led here has it"}
	}
	ref := ops.ScheduleRef{Name: p("name")}
	return asSeen(ctx, db, func(db pawl.DB) (ops.Result, error) { return ref.RunNow(ctx, db, by) }, func(db pawl.DB, r ops.Result) (bool, error) {
		records, err := ref.Changes(ctx, db)
		if n := len(records); n > 0 && !r.DryRun { // the last is its own
			records = records[:n-1]
		}
		return lastRecord(records) == seen, err
	})
}

// What actions are about, and where their things are shown.

func theJob(p parameters) string      { return "job " + p("id") }
func theLane(p parameters) string     { return "lane " + p("name") + " of queue " + p("queue") }
func theQueue(p parameters) string    { return "queue " + p("name") }
func theSchedule(p parameters) string { return "schedule " + p("name") }
func theDelivery(p parameters) string {
	return "delivery " + p("key") + " of consumer " + p("consumer")
}
func theCommand(p parameters) string { return "command " + p("key") + " of scope " + p("scope") }
func theStep(p parameters) string    { return "step " + p("step") + " of " + p("scope") + " " + p("key") }
func theGate(p parameters) string {
	return "sequence gate " + p("resource") + " of consumer " + p("consumer")
}

func toJob(l link, p parameters) string      { return l.To("job", "id", p("id")) }
func toLane(l link, p parameters) string     { return l.Lane(p("queue"), p("name")) }
func toQueue(l link, p parameters) string    { return l.Queue(p("name")) }
func toSchedule(l link, p parameters) string { return l.Schedule(p("name")) }
func toDelivery(l link, p parameters) string { return l.Delivery(p("consumer"), p("key")) }
func toCommand(l link, p parameters) string  { return l.Command(p("scope"), p("key")) }
func toStep(l link, p parameters) string     { return l.Step(p("scope"), p("key"), p("step")) }
func toGate(l link, p parameters) string     { return l.Gate(p("consumer"), p("resource")) }

// number is a parameter that is required: what was seen of a thing.
func (p parameters) number(name string) (int64, error) {
	n, err := strconv.ParseInt(p(name), 10, 64)
	if err != nil || n < 1 {
		return 0, badParameter{name, p(name), "a whole number above zero, as the page that led here has it"}
	}
	return n, nil
}

// maybe is a parameter that may be absent.
func (p parameters) maybe(name string) (*int64, error) {
	if p(name) == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(p(name), 10, 64)
	if err != nil {
		return nil, badParameter{name, p(name), "a whole number"}
	}
	return &n, nil
}

func (p parameters) step(fence int64) ops.StepRef {
	return ops.StepRef{Scope: p("scope"), Key: p("key"), Step: p("step"), Fence: fence}
}

type does = func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error)

func onJob(verb func(ops.JobRef, context.Context, pawl.DB, ops.By) (ops.Result, error)) does {
	return func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
		id, err := p.number("id")
		if err != nil {
			return ops.Result{}, err
		}
		fence, err := strconv.ParseInt(p("fence"), 10, 64)
		if err != nil {
			return ops.Result{}, badParameter{"fence", p("fence"), "a whole number, as the page that led here has it"}
		}
		return verb(ops.JobRef{ID: id, Fence: fence}, ctx, db, by)
	}
}

func onQueue(verb func(ops.QueueRef, context.Context, pawl.DB, ops.By) (ops.Result, error)) does {
	return func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
		return verb(ops.QueueRef{Name: p("name")}, ctx, db, by)
	}
}

func onSchedule(verb func(ops.ScheduleRef, context.Context, pawl.DB, ops.By) (ops.Result, error)) does {
	return func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
		return verb(ops.ScheduleRef{Name: p("name")}, ctx, db, by)
	}
}

func onDelivery(verb func(ops.DeliveryRef, context.Context, pawl.DB, ops.By) (ops.Result, error)) does {
	return func(ctx context.Context, db pawl.DB, p parameters, by ops.By) (ops.Result, error) {
		seen := time.Time{}
		if at := p("processed_at"); at != "none" {
			var err error
			if seen, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return ops.Result{}, badParameter{"processed_at", at, "a time, as the page that led here has it"}
			}
		}
		return verb(ops.DeliveryRef{Consumer: p("consumer"), Key: p("key"), ProcessedAt: &seen}, ctx, db, by)
	}
}
