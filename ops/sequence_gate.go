package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/contract"
)

// A SequenceGate lets the deliveries of one resource take effect in the order of their numbers.
type SequenceGate struct {
	Consumer string    `json:"consumer"`
	Resource string    `json:"resource"`
	Last     *int64    `json:"last"`               // the last number that took effect; nil: none
	Held     int       `json:"held"`               // deliveries that arrived before earlier numbers
	NextHeld *int64    `json:"next_held,omitzero"` // the lowest held number; nil: none
	Since    time.Time `json:"since,omitzero"`     // when the first held delivery arrived
	ReadAt   time.Time `json:"read_at"`            // the database's clock when the row was read

	// by operators: the newest 100, oldest first; read by Get only
	Changes []Change `json:"changes,omitzero" col:"-"`
}

// Ref returns a reference to the gate as it was read.
func (g SequenceGate) Ref() SequenceGateRef {
	return SequenceGateRef{Consumer: g.Consumer, Resource: g.Resource, Last: g.Last, NextHeld: g.NextHeld}
}

// SequenceGates selects sequence gates. The zero value selects all.
type SequenceGates struct {
	Consumer string
	Held     bool   // only gates that hold a delivery
	After    string // only rows after this one: [Page.Next] of the previous page
	Limit    int    // default 50, at most 1000
}

// List returns gates ordered by consumer and resource, compared by bytes.
//
// Errors: [pawl.ErrArgumentInvalid].
func (s SequenceGates) List(ctx context.Context, db pawl.DB) (Page[SequenceGate], error) {
	page, err := pageOf("gate.list", s.After, s.Limit, anyText, anyText)
	if err != nil {
		return Page[SequenceGate]{}, err
	}
	rows, err := catalog.SequenceGates[SequenceGate](ctx, db, catalog.SequenceGateQuery{Consumer: s.Consumer, Held: s.Held, Page: page})
	return cut(rows, page, func(g SequenceGate) []string { return []string{g.Consumer, g.Resource} }), err
}

// A SequenceGateRef identifies a gate, and may hold what you saw of it.
type SequenceGateRef struct {
	Consumer, Resource string
	// the gate's number: if it has changed, Reset changes nothing; default: any
	Last *int64
	// the lowest held number: if it has changed, Release changes nothing; default: any
	NextHeld *int64
}

// Get returns everything about the gate.
//
// Errors: [pawl.ErrNotFound] if no delivery of the resource has arrived.
func (r SequenceGateRef) Get(ctx context.Context, db pawl.DB) (SequenceGate, error) {
	rows, err := catalog.SequenceGate[SequenceGate](ctx, db, r.Consumer, r.Resource)
	g, err := only(rows, err, "gate.get", fmt.Sprintf("sequence gate %s of consumer %s", r.Resource, r.Consumer))
	if err != nil {
		return g, err
	}
	g.Changes, err = changes(ctx, db, "gate", r.Consumer, r.Resource)
	return g, err
}

// Reset sets the gate's number: the next number is last + 1. Held deliveries up to there become due
// at once. Outcome [Moved]: the gate's number is no longer Last; setting it back would let numbers
// pass again.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if an open transaction holds the gate
// for more than 2 s.
func (r SequenceGateRef) Reset(ctx context.Context, db pawl.DB, last int64, by By) (Result, error) {
	return by.once(ctx, db, "gate.reset", func(db pawl.DB) (Result, error) {
		row, err := contract.GateReset(ctx, db, r.Consumer, r.Resource, last, r.Last, by.Actor, by.Reason)
		return gateResult(row, &last), err
	})
}

// Release gives up the missing numbers before the lowest held one. If one of them arrives later, it
// is dropped. Outcome [Idle]: nothing is held. Outcome [Moved]: NextHeld is no longer the lowest
// held number.
//
// Errors: those of Reset.
func (r SequenceGateRef) Release(ctx context.Context, db pawl.DB, by By) (Result, error) {
	return by.once(ctx, db, "gate.release", func(db pawl.DB) (Result, error) {
		row, err := contract.GateRelease(ctx, db, r.Consumer, r.Resource, r.NextHeld, by.Actor, by.Reason)
		return gateResult(row, row.Last), err
	})
}

func gateResult(row contract.GateOperateRow, last *int64) Result {
	r := Result{Outcome: Outcome(row.Outcome)}
	if row.Before != nil {
		r.Was = id(*row.Before)
	}
	switch {
	case r.Outcome == Idle:
		r.Hint = "nothing is held: list the gates that hold something"
	case r.Outcome == Moved:
		r.Hint = "it has moved since you looked: look again"
	case last != nil:
		r.Now = id(*last)
	}
	return r
}
