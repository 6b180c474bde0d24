package command

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// A habit holds the outcomes of the last 16 calls of a scope: one bit each, set if the key had an
// answer. A look before the transaction saves two thirds of the cost of a replay, but costs a new
// key half a transaction more. So a call looks first while more than half of the bits are set.
type habit struct{ last atomic.Uint32 }

// habits are shared by scopes with equal hashes, which only costs time. A mismatch is an answer.
var habits habitTable

type habitTable [1024]habit

var habitSeed = maphash.MakeSeed()

func (t *habitTable) of(scope string) *habit {
	return &t[maphash.String(habitSeed, scope)%uint64(len(t))]
}

// answered reports whether more than half of the last calls found an answer.
func (t *habitTable) answered(scope string) bool {
	return bits.OnesCount32(t.of(scope).last.Load()) > 8
}

// note records one call. If two calls note at once, one of them may get lost.
func (t *habitTable) note(scope string, answered bool) {
	h, bit := t.of(scope), uint32(0)
	if answered {
		bit = 1
	}
	h.last.Store((h.last.Load()<<1 | bit) & 0xffff)
}
