package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

// An Overview shows the whole system.
type Overview struct {
	Queues    []Queue     `json:"queues" col:"-"`
	Workers   []Worker    `json:"workers" col:"-"`
	Consumers []Consumer  `json:"consumers" col:"-"`
	Outbox    []OutboxLag `json:"outbox" col:"-"`
	// need a verdict: see [CommandRef.Settle]
	UnknownCommands int `json:"unknown_commands"`
	// their lease has expired; the next call with their key takes them over
	StaleCommands int `json:"stale_commands"`
	// need a verdict: see [StepRef.Settle]
	UnknownSteps int `json:"unknown_steps"`
	// vacuum removes no row that died later; zero: none, or not visible to this login
	OldestSnapshot time.Time `json:"oldest_snapshot,omitzero"`
	// the same as a number of transactions
	XminAge int64 `json:"xmin_age"`
	// the database's clock when the rows were read
	ReadAt time.Time `json:"read_at"`
}

// A Worker is a process that has or had jobs.
type Worker struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	// "alive"; "silent": its lease has expired; "gone": it is silent and its presence lock is free,
	// so its process has ended
	State          string    `json:"state"`
	SeenAt         time.Time `json:"seen_at"`          // last heartbeat
	LeaseExpiresAt time.Time `json:"lease_expires_at"` // then other workers take its jobs
	// it holds a presence lock, so its death is noticed sooner
	Presence bool `json:"presence"`
	Held     int  `json:"held"` // jobs
}

// A Consumer is a consumer that has reported how long it remembers its deliveries.
type Consumer struct {
	Name      string        `json:"name"`
	Remembers time.Duration `json:"-" col:"window_ms"` // 0: forever
	// how long after sending a message may be delivered; 0: unknown
	Redelivery time.Duration `json:"-" col:"horizon_ms"`
	SeenAt     time.Time     `json:"seen_at"` // last report
}

// MarshalJSON writes the durations as remembers_ms and redelivery_ms.
func (c Consumer) MarshalJSON() ([]byte, error) {
	type alias Consumer
	return json.Marshal(struct {
		alias
		RemembersMS  int64 `json:"remembers_ms"`
		RedeliveryMS int64 `json:"redelivery_ms"`
	}{alias(c), c.Remembers.Milliseconds(), c.Redelivery.Milliseconds()})
}

// Look returns an overview. It reads all jobs, commands and steps.
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
