package pawlkafka

import (
	"slices"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A state is the state of a record from its fetch until the mark passes it.
type state uint8

const (
	fresh   state = iota // fetched, or released and due
	out                  // handed out
	waiting              // released, and its delay is not over
	settled              // acknowledged
	void                 // truncated from the log, which may hold another record at its offset now
)

// An entry is one record in a window. It is the handle of its delivery.
type entry struct {
	of      *partition
	offset  int64
	epoch   int32 // of the leader that wrote it
	state   state
	started bool   // work has started: a revoke waits
	handed  int    // how often it was handed out
	suspect bool   // an earlier owner may have had it
	size    int    // bytes in memory
	key     string // the ordering key; "" for none
	due     time.Time
	record  *kgo.Record // nil once it is settled
}

// A window holds the records of one partition from the mark on, in offset order:
//
//	fetched ─▶ fresh ─▶ out ─▶ settled ─▶ passed by the mark
//	             ▲        │
//	             └ waiting ◀ released
//
// The mark is the offset to commit: all records before it are settled. It moves up to the first
// unsettled record. Only a truncation of the log moves it back.
type window struct {
	entries []*entry // from the mark on
	todo    []*entry // the fresh and waiting ones of entries
	outs    map[string]int

	mark      int64 // the next offset to commit; -1: unknown
	markEpoch int32
	next      int64 // where the next record is expected; -1: unknown

	unsettled int
	octets    int
	started   int
}

func newWindow(mark int64, epoch int32) window {
	return window{mark: mark, markEpoch: epoch, next: mark, outs: map[string]int{}}
}

// add adds a fetched record. Its offset is at least next, as offsets may have gaps.
func (w *window) add(p *entry) {
	if w.mark < 0 {
		w.mark, w.markEpoch = p.offset, p.epoch
	}
	w.next = p.offset + 1
	w.unsettled++
	w.octets += p.size
	w.entries, w.todo = append(w.entries, p), append(w.todo, p)
}

// take hands out at most limit records in offset order. It skips an ordering key while one of its
// records is out from an earlier take. It also skips the records of a key after one that waits.
func (w *window) take(limit int, now time.Time) (taken []*entry) {
	blocked := map[string]bool{}
	kept := w.todo[:0]
	for i, p := range w.todo {
		if len(taken) == limit {
			kept = append(kept, w.todo[i:]...)
			break
		}
		switch {
		case p.state == waiting && p.due.After(now):
			blocked[p.key] = p.key != ""
		case blocked[p.key], w.outs[p.key] > 0:
		default:
			taken = append(taken, p)
			continue
		}
		kept = append(kept, p)
	}
	clear(w.todo[len(kept):])
	w.todo = kept
	for _, p := range taken {
		p.state = out
		p.handed++
		if p.key != "" {
			w.outs[p.key]++
		}
	}
	return taken
}

// due returns when the first waiting record may be handed out; zero if none waits.
func (w *window) due() (first time.Time) {
	for _, p := range w.todo {
		if p.state == waiting && (first.IsZero() || p.due.Before(first)) {
			first = p.due
		}
	}
	return first
}

// begin marks a record as started, and reports whether it is out.
func (w *window) begin(p *entry) bool {
	if p.state != out {
		return false
	}
	if !p.started {
		p.started = true
		w.started++
	}
	return true
}

// settle settles a record and moves the mark if it was the first. It reports whether it was out.
func (w *window) settle(p *entry) bool {
	if p.state != out {
		return false
	}
	w.back(p, settled)
	w.unsettled--
	w.octets -= p.size
	p.record = nil
	passed := 0
	for passed < len(w.entries) && w.entries[passed].state == settled {
		passed++
	}
	if passed > 0 {
		last := w.entries[passed-1]
		w.mark, w.markEpoch = last.offset+1, last.epoch
		clear(w.entries[:passed])
		w.entries = w.entries[passed:]
	}
	return true
}

// release returns a record to the window until due. It reports whether the record was out.
func (w *window) release(p *entry, due, now time.Time) bool {
	if p.state != out {
		return false
	}
	p.due = due
	if due.After(now) {
		w.back(p, waiting)
	} else {
		w.back(p, fresh)
	}
	at := sort.Search(len(w.todo), func(i int) bool { return w.todo[i].offset > p.offset })
	w.todo = slices.Insert(w.todo, at, p)
	return true
}

// back moves a record that is out to another state.
func (w *window) back(p *entry, to state) {
	p.state = to
	if p.started {
		p.started = false
		w.started--
	}
	if p.key == "" {
		return
	}
	if w.outs[p.key]--; w.outs[p.key] == 0 {
		delete(w.outs, p.key)
	}
}

// truncate drops the records from offset at on, because the log was cut there and continues with
// others. If the mark was beyond at, it moves back to at.
func (w *window) truncate(at int64, epoch int32) {
	cut := sort.Search(len(w.entries), func(i int) bool { return w.entries[i].offset >= at })
	for _, p := range w.entries[cut:] {
		if p.state == out {
			w.back(p, void)
		}
		if p.state != settled {
			w.unsettled--
			w.octets -= p.size
		}
		p.state, p.record = void, nil
	}
	clear(w.entries[cut:])
	w.entries = w.entries[:cut]
	w.todo = slices.DeleteFunc(w.todo, func(p *entry) bool { return p.state == void })
	w.next = at
	if w.mark > at {
		w.mark, w.markEpoch = at, epoch
	}
}

// span returns how many records the window holds, including settled ones after an unsettled one.
func (w *window) span() int { return len(w.entries) }
