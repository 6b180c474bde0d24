package ops

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/contract"
)

// An Overview is one look at everything.
type Overview struct {
	Queues          []Backlog
	Workers         []Worker
	Consumers       []Consumer
	Outbox          []OutboxLag
	UnknownCommands int       // need a verdict: see SettleCommand
	StaleCommands   int       // their lease is over; the next call with their key takes them over
	UnknownEffects  int       // need a verdict: see SettleEffect
	OldestSnapshot  time.Time // what has died since is in everybody's way; zero: none, or not this login's to see
	XminAge         int64     // the same, in transactions
	ReadAt          time.Time // the database's clock at the reading
}

// A Backlog is one queue with a job that has not finished.
type Backlog struct {
	Queue        string
	Due          int // may be claimed now
	Later        int // wait for their time: retries and delayed jobs
	Waiting      int // for their turn in a lane
	Processing   int
	Dead         int
	Unknown      int
	Cancelled    int
	DueSince     time.Time // of the first that is due; zero: none is
	LanesBlocked int       // by a dead letter, or one of which nobody knows
	Mode         QueueMode // what of it may be claimed
}

// A Worker is one process that has work, or had some.
type Worker struct {
	ID             int64
	Name           string
	SeenAt         time.Time // its last heartbeat
	LeaseExpiresAt time.Time // then others take its jobs
	Present        bool      // it holds a presence lock, so that its death is noticed sooner
	Held           int       // jobs
	Alive          bool      // its lease is not over
	Gone           bool      // its process has ended: it held a presence lock, which is free, and it is silent
}

// A Consumer is one that has said for how long it remembers its deliveries.
type Consumer struct {
	Name       string
	Remembers  time.Duration // 0: for ever
	Redelivery time.Duration // how long after it was sent a message may be delivered; 0: nobody knows
	SeenAt     time.Time     // when it last said so
}

// Look returns an overview. It reads the whole of jobs, commands and effects.
func Look(ctx context.Context, db DB) (o Overview, err error) {
	unknown, err := contract.Unknown(ctx, db)
	if err != nil {
		return o, err
	}
	o = Overview{UnknownCommands: unknown.Commands, StaleCommands: unknown.StaleCommands, UnknownEffects: unknown.Effects,
		OldestSnapshot: orZero(unknown.OldestSnapshot), XminAge: unknown.XminAge, ReadAt: unknown.ReadAt}
	queues, err := contract.Backlog(ctx, db)
	if err != nil {
		return o, err
	}
	for _, r := range queues {
		o.Queues = append(o.Queues, Backlog{r.Queue, r.Due, r.Later, r.Waiting, r.Processing, r.Dead, r.Unknown, r.Cancelled,
			orZero(r.DueSince), r.LanesBlocked, QueueMode(r.Mode)})
	}
	workers, err := contract.Workers(ctx, db)
	if err != nil {
		return o, err
	}
	for _, r := range workers {
		o.Workers = append(o.Workers, Worker{ID: r.ID, Name: r.Name, SeenAt: r.SeenAt, LeaseExpiresAt: r.LeaseExpiresAt, Present: r.Presence,
			Held: r.Held, Alive: r.LeaseExpiresAt.After(r.ReadAt), Gone: r.Gone})
	}
	consumers, err := contract.Consumers(ctx, db)
	if err != nil {
		return o, err
	}
	for _, r := range consumers {
		o.Consumers = append(o.Consumers, Consumer{r.Name, r.Window, r.Horizon, r.SeenAt})
	}
	o.Outbox, err = OutboxLags(ctx, db, "")
	return o, err
}
