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
	Last     *int64    `json:"last"`               // the number that took effect last; nil: none
	Held     int       `json:"held"`               // deliveries that came before those that must take effect first
	NextHeld *int64    `json:"next_held,omitzero"` // the lowest of their numbers; nil: none is held
	Since    time.Time `json:"since,omitzero"`     // when the first of them came
	ReadAt   time.Time `json:"read_at"`            // the database's clock at the reading

	Changes []Change `json:"changes,omitzero" col:"-"` // by hand: the newest 100, oldest first; read by Get only
}

// Ref names the gate as it was read.
func (g SequenceGate) Ref() SequenceGateRef {
	return SequenceGateRef{Consumer: g.Consumer, Resource: g.Resource, Last: g.Last, NextHeld: g.NextHeld}
}

// SequenceGates selects sequence gates. The zero value selects all.
type SequenceGates struct {
	Consumer string
	Held     bool   // only those at which something is held
	After    string // only those behind this one: [Page.Next] of the page before
	Limit    int    // default 50, at most 1000
}

// List returns gates in the order of consumer and resource, by octets.
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

// A SequenceGateRef names a gate, and what you saw of it.
type SequenceGateRef struct {
	Consumer, Resource string
	Last               *int64 // where it stood: if it has moved since, Reset changes nothing. Default: any
	NextHeld           *int64 // the lowest number that was held: if another one is by now, Release changes nothing. Default: any
}

// Get returns everything about the gate.
//
// Errors: [pawl.ErrNotFound] if no delivery of the resource has come.
func (r SequenceGateRef) Get(ctx context.Context, db pawl.DB) (SequenceGate, error) {
	rows, err := catalog.SequenceGate[SequenceGate](ctx, db, r.Consumer, r.Resource)
	g, err := only(rows, err, "gate.get", fmt.Sprintf("sequence gate %s of consumer %s", r.Resource, r.Consumer))
	if err != nil {
		return g, err
	}
	g.Changes, err = changes(ctx, db, "gate", r.Consumer, r.Resource)
	return g, err
}

// Reset says where the gate stands: the next number is last + 1. What was held up to there is
// due at once. [Moved]: the gate does not stand at Last any more; setting it back would let numbers pass again.
//
// Errors: [pawl.ErrArgumentInvalid]; a [pawl.Retryable] one if an open transaction has the gate for more than 2 s.
func (r SequenceGateRef) Reset(ctx context.Context, db pawl.DB, last int64, by By) (Result, error) {
	return by.once(ctx, db, "gate.reset", func(db pawl.DB) (Result, error) {
		row, err := contract.GateReset(ctx, db, r.Consumer, r.Resource, last, r.Last, by.Actor, by.Reason)
		return gateResult(row, &last), err
	})
}

// Release gives up the numbers that are missing before the lowest that is held. What was given up and comes after all is dropped.
// [Idle]: nothing is held. [Moved]: NextHeld is not the lowest that is held any more.
//
// Errors: as of Reset.
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
