package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// An Overview is one look at everything.
type Overview struct {
	Queues          []Queue     `json:"queues" col:"-"`
	Workers         []Worker    `json:"workers" col:"-"`
	Consumers       []Consumer  `json:"consumers" col:"-"`
	Outbox          []OutboxLag `json:"outbox" col:"-"`
	UnknownCommands int         `json:"unknown_commands"`         // need a verdict: see [CommandRef.Settle]
	StaleCommands   int         `json:"stale_commands"`           // their lease is over; the next call with their key takes them over
	UnknownSteps    int         `json:"unknown_steps"`            // need a verdict: see [StepRef.Settle]
	OldestSnapshot  time.Time   `json:"oldest_snapshot,omitzero"` // vacuum removes nothing that died since; zero: none, or not this login's to see
	XminAge         int64       `json:"xmin_age"`                 // the same, in transactions
	ReadAt          time.Time   `json:"read_at"`                  // the database's clock at the reading
}

// A Worker is one process that has work, or had some.
type Worker struct {
	ID             int64     `json:"id"`
	Name           string    `json:"name"`
	State          string    `json:"state"`            // "alive"; "silent": its lease is over; "gone": its process has ended, since it is silent and its presence lock is free
	SeenAt         time.Time `json:"seen_at"`          // its last heartbeat
	LeaseExpiresAt time.Time `json:"lease_expires_at"` // then others take its jobs
	Presence       bool      `json:"presence"`         // it holds a presence lock, so that its death is noticed sooner
	Held           int       `json:"held"`             // jobs
}

// A Consumer is one that has said for how long it remembers its deliveries.
type Consumer struct {
	Name       string        `json:"name"`
	Remembers  time.Duration `json:"-" col:"window_ms"`  // 0: for ever
	Redelivery time.Duration `json:"-" col:"horizon_ms"` // how long after it was sent a message may be delivered; 0: not known
	SeenAt     time.Time     `json:"seen_at"`            // when it last said so
}

// MarshalJSON writes the durations as remembers_ms and redelivery_ms.
func (c Consumer) MarshalJSON() ([]byte, error) {
	type plain Consumer
	return json.Marshal(struct {
		plain
		RemembersMS  int64 `json:"remembers_ms"`
		RedeliveryMS int64 `json:"redelivery_ms"`
	}{plain(c), c.Remembers.Milliseconds(), c.Redelivery.Milliseconds()})
}

// Look returns an overview. It reads the whole of jobs, commands and steps.
func Look(ctx context.Context, db pawl.DB) (o Overview, err error) {
	standing, err := catalog.Standing[Overview](ctx, db)
	if err != nil {
		return o, err
	}
	o = standing[0]
	if o.Queues, err = catalog.Queues[Queue](ctx, db, catalog.Page{}); err != nil {
		return o, err
	}
	if o.Workers, err = catalog.Workers[Worker](ctx, db); err != nil {
		return o, err
	}
	if o.Consumers, err = catalog.Consumers[Consumer](ctx, db); err != nil {
		return o, err
	}
	o.Queues, o.Workers, o.Consumers = listed(o.Queues), listed(o.Workers), listed(o.Consumers)
	o.Outbox, err = Outbox{}.Lag(ctx, db)
	return o, err
}
