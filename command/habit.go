package command

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// A habit is what became of the last 16 calls of a scope: a bit each, set if there was an answer. A look before a transaction saves
// a replay two thirds of its cost, and costs a new key half a transaction more, so it is taken while more than half were answers.
type habit struct{ last atomic.Uint32 }

// habits are shared by scopes whose hash is the same, which costs time only. A mismatch counts as an answer, since a look finds it.
var habits habitTable

type habitTable [1024]habit

var habitSeed = maphash.MakeSeed()

func (t *habitTable) of(scope string) *habit {
	return &t[maphash.String(habitSeed, scope)%uint64(len(t))]
}

// answered reports whether more than half of the last calls were.
func (t *habitTable) answered(scope string) bool {
	return bits.OnesCount32(t.of(scope).last.Load()) > 8
}

// note keeps one call in mind. Two at once may lose one of them.
func (t *habitTable) note(scope string, answered bool) {
	h, bit := t.of(scope), uint32(0)
	if answered {
		bit = 1
	}
	h.last.Store((h.last.Load()<<1 | bit) & 0xffff)
}
