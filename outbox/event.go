package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/kick"
	"github.com/pawl-go/pawl/job"
)

// An Event is a fact to publish. Only Type is required; zero values are fit for production.
type Event struct {
	// Type names what happened, such as "OrderPlaced". 1 to 255 octets.
	Type string
	// AggregateType and AggregateID name the entity, such as "order" and "17". Events of one
	// aggregate are published one at a time, in the order in which they were appended. Until your
	// transaction ends, other appends to the aggregate wait: append late and keep the transaction
	// short. Set both or neither, up to 255 octets each. Default: no order.
	AggregateType, AggregateID string
	// Payload is the exact octets to publish, at most 4 MiB. Keep it small: each attempt rewrites
	// the job's row together with a payload under 2 kB.
	Payload []byte
	// Value is encoded as JSON into Payload. Set Payload or Value, not both.
	Value any
	// Scope and Key make appending idempotent: the same Scope, Key and Type append once. Use those
	// of the command that the event is part of. Set both or neither. Default: a new id.
	Scope, Key string
	// Fingerprint detects a different event under the same Key. Default: aggregate and payload.
	Fingerprint pawl.Fingerprint
	// Retention is how long the key is remembered, even after publishing. Default 24 h, 1 s to
	// 10 years.
	Retention time.Duration
	// Source is the ce-source attribute of CloudEvents, a URI reference. Default: the relay's.
	Source string
	// ContentType describes Payload. Default application/json for a Value, else none.
	ContentType string
	// Time is when the event happened. Default: when it was appended.
	Time time.Time
	// Headers are published beside the payload. The trace of the context is added, see
	// [pawl.WithTrace]. The names ce-id, ce-type and ce-specversion, and names that begin with
	// pawl-, are refused.
	Headers map[string]string
	// MaxAttempts bounds the attempts before it becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// LanePolicy decides about an aggregate's later events when one becomes a dead letter:
	// [job.LaneBlock] holds them back, [job.LanePark] and [job.LaneSkip] publish them. It applies
	// only if the aggregate has no other events. Default LaneBlock.
	LanePolicy job.LanePolicy
	// SinkName selects the relays that publish the event: those with this [Config.SinkName].
	// Default [DefaultSink], up to 200 octets.
	SinkName string
}

// DefaultSink is the default of [Event.SinkName] and [Config.SinkName].
const DefaultSink = "default"

// QueueOf returns the job queue that holds a sink's events.
func QueueOf(sink string) string { return "outbox/" + sink }

// kind is the job kind of events.
const kind = "event"

// Appended is the result of appending one event.
type Appended struct {
	EventID string // by which receivers recognise the event
	JobID   int64
	// Duplicate: an earlier call with this scope, key and type appended it. It is stored once.
	Duplicate bool
}

// Append stores up to 10,000 events in your transaction and returns one result for each, in their
// order. They are published if and only if the transaction commits. For database/sql pass
// [pawl.SQLTx]. All keys of a call are remembered for the longest Retention among its events.
// Events with an aggregate must have the same LanePolicy.
//
// If the transaction belongs to a Pawl handler, its commit wakes the relays. After a commit of your
// own call [Kick].
//
// Errors: [pawl.ErrKeyReused] if a key was used before with another aggregate or payload;
// [pawl.ErrArgumentInvalid], [pawl.ErrScopeInvalid] or [pawl.ErrKeyInvalid] if a field is out of
// bounds. If two transactions each append to several aggregates in several calls, they can
// deadlock. PostgreSQL then aborts one with 40P01; run it again from the start.
func Append(ctx context.Context, tx pawl.Tx, events ...Event) ([]Appended, error) {
	if len(events) == 0 {
		return nil, nil
	}
	args := make([]contract.OutboxAppendArgs, len(events))
	var retention time.Duration
	for i, e := range events {
		var err error
		if args[i], err = e.args(ctx); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		retention = max(retention, e.Retention)
	}
	policy, err := commonPolicy(events)
	if err != nil {
		return nil, err
	}
	rows, err := send(ctx, tx, args, retention, policy)
	if err != nil {
		return nil, err
	}
	kick.AfterCommit(tx, queuesOf(args)...)
	appended := make([]Appended, len(rows))
	for i, r := range rows {
		if appended[i], err = appendedOf(r); err != nil {
			return nil, err
		}
	}
	return appended, nil
}

// Kick wakes the relays of the named sinks in all processes. Call it after your transaction with
// events has committed; otherwise they publish after their next poll. Pass the pool. Without names
// it wakes those of [DefaultSink]. It never waits; see [job.Kick].
func Kick(db pawl.DB, sinks ...string) {
	if len(sinks) == 0 {
		sinks = []string{DefaultSink}
	}
	queues := make([]string, len(sinks))
	for i, s := range sinks {
		queues[i] = QueueOf(s)
	}
	job.Kick(db, queues...)
}

func send(ctx context.Context, tx pawl.Tx, args []contract.OutboxAppendArgs, retention time.Duration, policy string) ([]contract.OutboxAppendRow, error) {
	if len(args) == 1 {
		row, err := contract.OutboxAppend(ctx, tx, args[0])
		return []contract.OutboxAppendRow{row}, err
	}
	return contract.OutboxAppendMany(ctx, tx, args, retention, policy)
}

// commonPolicy returns the policy that all events with an aggregate must share.
func commonPolicy(events []Event) (policy string, err error) {
	first := true
	for i, e := range events {
		switch {
		case e.AggregateID == "":
		case first:
			policy, first = string(e.LanePolicy), false
		case string(e.LanePolicy) != policy:
			return "", fmt.Errorf("event %d: %w", i, invalid(fmt.Errorf("the LanePolicy is %q, that of the events before it %q", e.LanePolicy, policy),
				"append the events of each policy in a call of their own"))
		}
	}
	return policy, nil
}

func (e Event) args(ctx context.Context) (contract.OutboxAppendArgs, error) {
	if e.SinkName == "" {
		e.SinkName = DefaultSink
	}
	args := contract.OutboxAppendArgs{
		Sink: e.SinkName, Type: e.Type, AggregateType: e.AggregateType, AggregateID: e.AggregateID, Payload: e.Payload,
		Scope: e.Scope, Key: e.Key, Fingerprint: e.Fingerprint, Retention: e.Retention, MaxAttempts: e.MaxAttempts,
		LanePolicy: string(e.LanePolicy),
	}
	if e.Retention < 0 { // the events of a call are kept for the longest
		return args, invalid(fmt.Errorf("the Retention must not be negative, it is %v", e.Retention), "leave it out for the default")
	}
	if e.LanePolicy != "" && e.AggregateID == "" {
		return args, invalid(errors.New("the event has a LanePolicy and no aggregate"), "name the aggregate")
	}
	if e.Value != nil {
		if e.Payload != nil {
			return args, invalid(errors.New("the event has both Payload and Value"), "give one of the two")
		}
		var err error
		if args.Payload, err = json.Marshal(e.Value); err != nil {
			return args, invalid(err, "encode the payload yourself, in Payload")
		}
		if e.ContentType == "" {
			e.ContentType = "application/json"
		}
	}
	args.Headers = e.headers(ctx)
	return args, nil
}

// headers returns the headers to store. It leaves out those that the relay derives from the row.
func (e Event) headers(ctx context.Context) map[string]string {
	all := make(map[string]string, len(e.Headers)+4)
	trace := pawl.TraceOf(ctx)
	if _, given := e.Headers[traceParent]; !given {
		put(all, traceParent, trace.Parent)
		put(all, traceState, trace.State)
	}
	put(all, ceSource, e.Source)
	put(all, contentType, e.ContentType)
	if !e.Time.IsZero() {
		all[ceTime] = e.Time.UTC().Format(time.RFC3339Nano)
	}
	maps.Copy(all, e.Headers)
	return all
}

func put(headers map[string]string, name, value string) {
	if value != "" {
		headers[name] = value
	}
}

func queuesOf(args []contract.OutboxAppendArgs) (queues []string) {
	last := ""
	for _, a := range args {
		if a.Sink != last { // Kick removes other duplicates
			queues, last = append(queues, QueueOf(a.Sink)), a.Sink
		}
	}
	return queues
}

func appendedOf(r contract.OutboxAppendRow) (Appended, error) {
	switch r.Outcome {
	case "appended":
		return Appended{EventID: r.EventID, JobID: r.JobID}, nil
	case "duplicate":
		return Appended{EventID: r.EventID, JobID: r.JobID, Duplicate: true}, nil
	}
	return Appended{}, &pawl.Error{Op: "outbox.append", Code: pawl.CodeUnknownState, Err: fmt.Errorf("outcome %q", r.Outcome)}
}

func invalid(err error, hint string) error {
	return &pawl.Error{Op: "outbox.append", Code: pawl.CodeArgumentInvalid, Err: err, Hint: hint}
}
