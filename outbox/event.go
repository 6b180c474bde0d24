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

// An Event is something that happened, to be told to others. Type is required; the zero value of the rest is fit for production.
type Event struct {
	// Type says what happened, such as "OrderPlaced". 1 to 255 octets.
	Type string
	// AggregateType and AggregateID name the thing it happened to, such as "order" and "17": its events are published one at a
	// time, in the order in which they were appended. Until your transaction ends, others that append to the aggregate wait, so
	// append late and keep it short. Both or neither, up to 255 octets each. Default no order.
	AggregateType, AggregateID string
	// Payload is the exact octets to publish, at most 4 MiB. Small is fast: every try copies payloads under 2 kB.
	Payload []byte
	// Value is encoded as JSON into Payload; give one of the two.
	Value any
	// Scope and Key make appending idempotent: the same Scope, Key and Type append once. Give those of the command that the event
	// is part of, both or neither. Default: every event is new, with an id of its own.
	Scope, Key string
	// Fingerprint tells events apart under one Key. Default: over the aggregate and the payload.
	Fingerprint pawl.Fingerprint
	// Retention is how long the key is remembered, also after publishing. Default 24 h, 1 s to 10 years.
	Retention time.Duration
	// Source is the ce-source attribute of CloudEvents, a URI reference. Default that of the relay.
	Source string
	// ContentType describes Payload. Default application/json for a Value, else none.
	ContentType string
	// Time is when it happened. Default when it was appended.
	Time time.Time
	// Headers travel beside the payload. The trace of the context joins them, see [pawl.WithTrace]. Names that begin with pawl-
	// are refused.
	Headers map[string]string
	// MaxAttempts bounds the tries before the event becomes a dead letter. Default 25, 1 to 1000.
	MaxAttempts int
	// LanePolicy is what happens to an aggregate's later events when one becomes a dead letter, if this event is the
	// aggregate's only one: [job.LaneBlock] holds them back, [job.LanePark] and [job.LaneSkip] publish them. Default LaneBlock.
	LanePolicy job.LanePolicy
	// SinkName selects the relays that publish it: those with this [Config.SinkName]. Default
	// [DefaultSink], up to 200 octets.
	SinkName string
}

// DefaultSink is the name of the sink where none is given.
const DefaultSink = "default"

// QueueOf returns the queue of jobs that a sink's events wait in.
func QueueOf(sink string) string { return "outbox/" + sink }

// kind of the jobs that are events.
const kind = "event"

// Appended is what became of an event.
type Appended struct {
	EventID string // what receivers recognise it by
	JobID   int64
	// Duplicate: an earlier call with this scope, key and type appended it. Nothing was stored now.
	Duplicate bool
}

// Append stores events in your transaction, up to 10,000, and answers in their order: they are published if and only if it
// commits. For database/sql pass [pawl.SQLTx]. All keys of a call are remembered for the longest Retention among the events, and
// events with an aggregate must agree in their LanePolicy.
//
// In a transaction that a handler of Pawl was lent the relays are told at its commit; after one of your own call [Kick].
//
// Errors: [pawl.ErrKeyReused] if a key came before with another aggregate or payload; [pawl.ErrArgumentInvalid],
// [pawl.ErrScopeInvalid], [pawl.ErrKeyInvalid] outside a bound. Two transactions that each append to several aggregates, in
// several calls, can deadlock: PostgreSQL then ends one with 40P01, and it must be run again from the start.
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
	answers := make([]Appended, len(rows))
	for i, r := range rows {
		if answers[i], err = appendedOf(r); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Kick tells the relays of some sinks, in whatever process, that your transaction with events has committed, so that they need
// not wait for their next poll. Pass the pool. Without a name it is for [DefaultSink]. It never waits; see [job.Kick].
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

// commonPolicy returns the one policy of all events with an aggregate.
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

// headers are those that are stored: what the relay can tell from the row is left out.
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
		if a.Sink != last { // Kick sorts out the rest
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
