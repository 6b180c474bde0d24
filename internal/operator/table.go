package operator

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/ops"
)

// Values that the operator saw, for several verbs.
var (
	ifFence     = Field{Name: "fence", Flag: "fence", Type: Number, Label: "the fence that you saw: if it has changed since, nothing happens"}
	mustFence   = Field{Name: "fence", Flag: "fence", Type: ID, Label: ifFence.Label, Arg: "N"}
	processedAt = Field{Name: "processed_at", Type: Time, None: true}
)

const archiveWas = "queue $name $outcome (archive was $was)"

// table lists all verbs that act on one thing. Its texts appear in the dashboard and in the
// terminal.
var table = []Verb{
	{Noun: Jobs, Name: "job_retry", Command: "retry", Title: "Retry", Short: "Make jobs due now and reset their attempts",
		Effect: "The job becomes due now, and its attempts are reset. Its handler runs again. Calls that an earlier attempt made outside the database may happen a second time, unless they were steps.",
		More: "You can retry a dead letter, a cancelled job, and a pending job that waits for its next attempt. Attempts and crashes start from zero; the error history stays. " +
			"It is the same job and the same intent: work that committed before is not repeated.\n\n" +
			"Some dead letters may take effect a second time. A delivery that used a known key with another payload runs beside the first. " +
			"A delivery that is older than the memory window may have run before. If a handler ended its transaction itself, its writes may be durable. " +
			"For these the command asks, or needs --yes. A delivery without a key, or over a limit, is not among them: it is identified again and claims its key.",
		Seen: []Field{ifFence}, Doubles: true, Example: "17 18 --reason 'the stock service is back'",
		Fits: is("status", ops.StatusPending, ops.StatusDeadLetter, ops.StatusCancelled), Job: ops.JobRef.Retry, Jobs: ops.Jobs.RetryAll, Outcome: ops.Retried},
	{Noun: Jobs, Name: "job_cancel", Command: "cancel", Title: "Cancel", Short: "End unfinished jobs, and keep them to be retried or discarded",
		Effect: "The job ends without success, and stays to be retried or discarded. A running attempt can no longer commit. Its effects outside the database are not undone.",
		More: "The worker of a running attempt learns of it with its next heartbeat. If the attempt's transaction is open at this moment, nothing changes, " +
			"and the command names the session.",
		Seen: []Field{ifFence}, Danger: true, Warning: "running attempts lose their work", Example: "17 --reason 'the customer called it off' --yes",
		Fits: is("status", ops.StatusPending, ops.StatusWaiting, ops.StatusProcessing), Job: ops.JobRef.Cancel},
	{Noun: Jobs, Name: "job_discard", Command: "discard", Title: "Discard", Short: "Delete jobs that no attempt holds",
		Effect: "The job is deleted, with its payload and its errors. You cannot undo this. A copy that arrives under its key is still a duplicate.",
		More: "The audit keeps the rest of the job, with the length and SHA-256 of the payload. A delivery that a consumer kept stays in pawl.delivery until it expires, " +
			"and pawl inbox replay can bring it back.",
		Seen: []Field{ifFence}, Danger: true, Warning: "the payload is lost, except for deliveries that a consumer has kept", Example: "17 --reason 'a test message of last week' --yes",
		Fits: is("status", ops.StatusPending, ops.StatusDeadLetter, ops.StatusCancelled), Job: ops.JobRef.Discard, Jobs: ops.Jobs.DiscardAll, Outcome: ops.Discarded},

	{Noun: Lanes, Name: "lane_unblock", Command: "unblock", Title: "Go on without it", Short: "Let a lane continue without the dead letter that blocks it",
		Effect: "The lane continues with the next job. The dead letter that blocked it stays, but loses its place: if you retry it later, it runs out of order. If the order matters, retry it instead: it still has its place.",
		Seen:   []Field{{Name: "head", Flag: "job", Type: ID, Label: "only if this job blocks it; 0 means any"}},
		Danger: true, Warning: "the jobs behind the dead letter run without it", Example: "orders account-17 --job 17 --reason 'booked by hand' --yes",
		Fits: not(is("head", "")), Done: line("lane $name unblocked: job $job has given up its turn"),
		Do: on(Values.lane, ops.LaneRef.Unblock)},
	{Noun: Lanes, Name: "lane_policy", Command: "policy", Title: "Set the policy", Short: "Set what a lane does when its head becomes a dead letter",
		Effect:  "From now on, a dead letter at the head of the lane blocks the lane, is parked so that the lane continues, or is skipped. A dead letter that blocks it already stays.",
		More:    "The lane is kept, even without a job. See: pawl lanes --help.",
		Inputs:  []Field{{Name: "policy", Arg: "policy", Label: "what a dead letter at the head does", Options: []string{"block", "park", "skip"}}},
		Example: "orders account-17 park --reason 'order matters less than delay here'", Done: line("lane $name changed (was $was)"),
		Do: func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
			return p.lane().SetPolicy(ctx, db, p("policy"), by)
		}},

	{Noun: Queues, Name: "queue_resume", Command: "resume", Title: "Resume", Short: "Claim all due jobs again",
		Effect:  "Workers claim all due jobs, including those that waited meanwhile.",
		Example: "orders --reason 'the stock service is back'", Fits: not(is("mode", ops.QueueRunning)), Do: on(Values.queue, ops.QueueRef.Resume)},
	{Noun: Queues, Name: "queue_drain", Command: "drain", Title: "Drain", Short: "Claim only jobs of a queue that were tried before",
		Effect:  "Workers claim only jobs that were tried before. New jobs wait.",
		Example: "orders --reason 'version 7 makes other calls'", Fits: not(is("mode", ops.QueueDraining)), Do: on(Values.queue, ops.QueueRef.Drain)},
	{Noun: Queues, Name: "queue_pause", Command: "pause", Title: "Pause", Short: "Claim no jobs of a queue", Danger: true,
		Effect:  "Workers claim no job of the queue until it is resumed. Running attempts continue, and jobs can be enqueued.",
		Example: "orders --reason 'the stock service is down'", Fits: not(is("mode", ops.QueuePaused)), Do: on(Values.queue, ops.QueueRef.Pause)},
	{Noun: Queues, Name: "queue_archive_off", Command: "set", Title: "Delete finished jobs", Danger: true,
		Effect: "From now on, finished jobs are deleted. Jobs in the archive stay there until they are seven days old.",
		Fits:   is("archive", "true"), Done: line(archiveWas), Already: archiveWas, Do: setArchive(false)},
	{Noun: Queues, Name: "queue_archive_on", Command: "set", Title: "Keep finished jobs",
		Effect: "Finished jobs are kept for seven days, including payloads. Finishing a job then costs two to three times as much.",
		Fits:   is("archive", "false"), Done: line(archiveWas), Already: archiveWas, Do: setArchive(true)},

	{Noun: Schedules, Name: "schedule_pause", Command: "pause", Title: "Pause", Short: "Enqueue nothing until it is resumed", Danger: true,
		Effect:  "The schedule enqueues nothing until it is resumed, not even ticks that are due already. Jobs that it has enqueued stay.",
		Example: "nightly-report --reason 'the warehouse is being moved'", Fits: is("paused", "false"), Already: "schedule $name is paused already", Do: on(Values.schedule, ops.ScheduleRef.Pause)},
	{Noun: Schedules, Name: "schedule_resume", Command: "resume", Title: "Resume", Short: "Continue with the next tick",
		Effect:  "The schedule continues with its next tick. Ticks that were missed meanwhile are dropped.",
		More:    "To run a missed one: pawl schedules run-now.",
		Example: "nightly-report --reason 'it has moved'", Fits: is("paused", "true"), Already: "schedule $name is not paused", Do: on(Values.schedule, ops.ScheduleRef.Resume)},
	{Noun: Schedules, Name: "schedule_run_now", Command: "run-now", Title: "Run now", Short: "Enqueue a job now, beside the plan",
		Effect: "One job is enqueued at once, beside the plan. The plan stays as it is, paused or not.", More: "If you call it twice, it enqueues two jobs.",
		Seen: []Field{{Name: "record", Type: Number}}, Warning: "a job is enqueued at once, beside the plan",
		Example: "nightly-report --reason 'yesterday is missing' --yes", Done: line("schedule $name: job $job enqueued"), Do: runNow},
	{Noun: Schedules, Name: "schedule_delete", Command: "delete", Title: "Delete", Short: "Delete a schedule", Danger: true, Warning: "it enqueues nothing any more",
		Effect:  "The schedule is deleted. Jobs that it has enqueued stay. A program that still puts it creates it again when it starts, and may then enqueue at once: remove it from the program first, or pause the schedule instead.",
		Example: "nightly-report --reason 'replaced by weekly-report' --yes", Do: on(Values.schedule, ops.ScheduleRef.Delete)},

	{Noun: Deliveries, Name: "inbox_replay", Command: "replay", Title: "Replay", Short: "Run deliveries again that have not taken effect",
		Effect: "If the delivery has not taken effect, it runs again. If it has, nothing happens: it goes through the inbox like every delivery.",
		More: "A copy that its sender sends meanwhile is a duplicate. If its effect was undone: pawl inbox forget, then this.\n\n" +
			"If its job is a dead letter, is cancelled or waits, that job becomes due now, and its attempts are reset. If its job was discarded, or the delivery was forgotten, " +
			"a new job is created from the copy in pawl.delivery.",
		Seen: []Field{processedAt}, Warning: "handlers run again for deliveries that have not taken effect", Example: "stripe evt_1 --reason 'the account exists now' --yes",
		Do: on(Values.delivery, ops.DeliveryRef.Replay)},
	{Noun: Deliveries, Name: "inbox_forget", Command: "forget", Title: "Forget", Short: "Forget a delivery, so that it runs as new when it arrives again",
		Effect: "The delivery is forgotten. When the same message arrives again, it runs as new, and its effect may occur twice.",
		More:   "No other command bypasses the inbox. It is refused while a job owns the delivery. A kept copy stays in pawl.delivery.",
		Seen: []Field{{Name: "processed_at", Flag: "processed-at", Type: Time, None: true,
			Label: "when it had taken effect, as you saw it in inbox show --json, or \"never\": if that has changed since, nothing happens"}},
		Danger: true, Warning: "the same message then takes effect again", Example: "orders order-17 --reason 'booked and reversed by hand; they send it anew' --yes",
		Fits: is("read", "true"), Do: on(Values.delivery, ops.DeliveryRef.Forget)},

	{Noun: Commands, Name: "command_settle", Command: "settle", Title: "Say what happened", Short: "Decide whether an unknown command took effect",
		Effect: "The command ends as you say. executed: it succeeded, and every repeated call gets the result. not_executed: the next call with the key may run it. " +
			"If you say not_executed although it was executed, that call takes effect a second time. If you say executed although it was not, it never takes effect.",
		More: "Find out first, from the provider or the business rows, whether it took effect. A late result of the unknown attempt is rejected from now on.",
		Seen: []Field{mustFence}, Inputs: []Field{{Name: "executed", Arg: "verdict", Label: "did it take effect?", Options: []string{"executed", "not_executed"}},
			{Name: "result", Flag: "result", Label: "the stored answer, if it was executed; usually JSON", FlagOnly: true},
			{Name: "ref_type", Flag: "ref-type", Label: "type of the created object (optional)"}, {Name: "ref_id", Flag: "ref-id", Label: "its id (optional)"}},
		Warning: "a wrong verdict doubles or loses an effect", Example: "orders/acme order-17 executed --fence 17 --result '{\"id\": 17}' --reason 'order 17 is there' --yes",
		Fits: is("status", ops.StatusUnknown), Done: line("command $key of scope $scope settled as $executed"),
		Check: func(p Values) (wrong, next string) {
			if p("executed") == "not_executed" && p("result")+p("ref_type")+p("ref_id") != "" {
				return "a command that was not executed has no result", "leave out the result, its type and its id"
			}
			return "", ""
		},
		Do: func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
			return ops.CommandRef{Scope: p("scope"), Key: p("key"), Fence: p.number("fence")}.Settle(ctx, db,
				ops.CommandVerdict{Executed: p("executed") == "executed", Result: p("result"), RefType: p("ref_type"), RefID: p("ref_id")}, by)
		}},

	{Noun: Steps, Name: "step_settle", Command: "settle", Title: "Say what the provider answered", Short: "Decide a step with an unknown outcome",
		Effect: "The job that waits for the step continues as you say. If you say not_executed, the call is made again. If the provider did execute it, that is a second effect, such as a second charge. " +
			"If you say executed although it was not, it never happens.",
		More: "Ask the provider first:\n\n" +
			"  executed       it took effect: the handler continues, with --result\n" +
			"  refused        it did not and never will: the handler gets an error\n" +
			"  not_executed   it did not: it is called again, now",
		Seen: []Field{mustFence}, Inputs: []Field{{Name: "outcome", Arg: "verdict", Label: "what the provider answered", Options: []string{"executed", "refused", "not_executed"}},
			{Name: "result", Flag: "result", Label: "what the call would have returned, as JSON, if it was executed", FlagOnly: true},
			{Name: "reference", Flag: "reference", Label: "the provider's reference, if it was executed"}, {Name: "code", Flag: "code", Label: "the provider's code, if it was refused", FlagOnly: true}},
		Warning: "after a wrong verdict it happens twice, or not at all", Example: "job/pay 17@1795285193170792 charge executed --fence 41 --result '{\"id\": \"ch_3Mq\"}' --reason 'seen in their dashboard' --yes",
		Fits: is("status", ops.StatusUnknown), Done: line("step $step settled: it is $now"),
		Do: func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
			return p.step().Settle(ctx, db, ops.StepVerdict{Outcome: p("outcome"), Result: p("result"), Reference: p("reference"), Code: p("code")}, by)
		}},
	{Noun: Steps, Name: "step_again", Command: "again", Title: "Call again under a new key", Short: "Call a permanently refused step again, under a new key",
		Effect: "The provider refused the call permanently. The step is called again under a new key at the next attempt of its owner. If the provider executed the first call after all, this is a second effect.",
		More: "Use it, for example, for a declined card when the customer has another one. The refusal is stored, and the provider repeats it for the old key, so pawl dlq retry alone fails again at once. " +
			"Retry the job afterwards. The new call shares no key with the old ones: look for the old key at the provider first.",
		Seen: []Field{mustFence}, Inputs: []Field{{Name: "provider_key", Flag: "key", Label: "new idempotency key (empty: a random one)"}},
		Danger: true, Warning: "the new call shares no key with the old ones: if the provider executed one of them after all, it happens twice",
		Example: "job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --dry-run\n" +
			"job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes",
		Fits: is("status", ops.StatusFailedFinal), Done: calledAgain,
		Do: func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
			return p.step().Again(ctx, db, p("provider_key"), by)
		}},

	{Noun: SequenceGates, Name: "sequence_gate_release", Command: "release", Title: "Give up missing numbers", Short: "Give up the missing numbers before the lowest held one",
		Effect: "The missing numbers before the lowest held one are given up. If one of them arrives later, it is dropped.", More: "The lowest held one becomes due at once.",
		Seen:   []Field{{Name: "next_held", Flag: "next", Type: Number, Optional: true, Label: "the lowest held number that you saw: if it has changed since, nothing happens"}},
		Danger: true, Warning: "the missing numbers are dropped if they arrive later", Example: "orders 'account 7' --reason 'the sender lost 42, see their ticket 1234' --yes",
		Fits: not(is("next_held", "")),
		Do:   on(Values.gate, ops.SequenceGateRef.Release)},
	{Noun: SequenceGates, Name: "sequence_gate_reset", Command: "reset", Title: "Set its number", Short: "Set a gate's number: the next number is LAST + 1",
		Effect: "The gate expects the number after LAST. If you set it back, numbers that took effect can take effect again.",
		More: "LAST is the number that took effect last. Use it for a strict gate that has no first number, or after a sender has restarted its numbers. " +
			"Held deliveries up to LAST + 1 become due at once; those up to LAST are then dropped.",
		Seen:   []Field{{Name: "last", Flag: "from", Type: Number, None: true, Label: "the gate's number that you saw, or none: if it has changed since, nothing happens"}},
		Inputs: []Field{{Name: "to", Arg: "LAST", Type: Number, Label: "last number that took effect"}},
		Danger: true, Warning: "deliveries with a number up to LAST are dropped",
		Example: "orders 'account 7' 41 --reason 'their numbers begin at 42' --yes\n--reason 'they begin at 0' --yes -- orders 'account 7' -1", Do: resetGate},
}

// calledAgain returns the line that tells under which key and when a step is called again.
func calledAgain(p Values, r ops.Result) string {
	key, next := "a new key", "its owner calls it at its next attempt; a command that has ended needs a new key from its caller"
	if r.ProviderKey != "" {
		key = "the key " + text.Visible(r.ProviderKey)
	}
	if r.JobID != 0 {
		next = fmt.Sprintf("pawl dlq retry %d --reason …", r.JobID)
	}
	return Line("step $step is called under ", p, r) + key + " at the next attempt\nnext: " + next
}

// Purge is the verb that deletes old rows. It acts on no single thing, so it has its own command
// and form.
var Purge = struct {
	Title, Effect, Warning string
	Do                     func(ctx context.Context, db pawl.DB, r ops.PurgeRule, by ops.By, progress func(ops.Tally)) (ops.Tally, error)
}{
	Title: "Purge", Warning: "a purged key is forgotten: a request with it runs as new", Do: ops.Purge,
	Effect: "A purged key is forgotten: a copy that arrives under it runs as new. Rows that are processing, unknown or wait for a retry are never purged, nor is a key whose job has a row. " +
		"Consumers purge their own deliveries while they run, and workers the enqueue keys.",
}

type doFunc = func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error)

// on returns a function that runs a verb on what the values name.
func on[Ref any](what func(Values) Ref, verb func(Ref, context.Context, pawl.DB, ops.By) (ops.Result, error)) doFunc {
	return func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
		return verb(what(p), ctx, db, by)
	}
}

func setArchive(on bool) doFunc {
	return func(ctx context.Context, db pawl.DB, p Values, by ops.By) (ops.Result, error) {
		return p.queue().SetArchive(ctx, db, on, by)
	}
}

func (p Values) queue() ops.QueueRef       { return ops.QueueRef{Name: p("name")} }
func (p Values) schedule() ops.ScheduleRef { return ops.ScheduleRef{Name: p("name")} }

func (p Values) lane() ops.LaneRef {
	return ops.LaneRef{Queue: p("queue"), Name: p("name"), Head: p.number("head")}
}

func (p Values) delivery() ops.DeliveryRef {
	return ops.DeliveryRef{Consumer: p("consumer"), Key: p("key"), ProcessedAt: p.when("processed_at")}
}

func (p Values) gate() ops.SequenceGateRef {
	return ops.SequenceGateRef{Consumer: p("consumer"), Resource: p("resource"), NextHeld: p.seen("next_held")}
}

func (p Values) step() ops.StepRef {
	return ops.StepRef{Scope: p("scope"), Key: p("key"), Step: p("step"), Fence: p.number("fence")}
}
