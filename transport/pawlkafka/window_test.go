package pawlkafka

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A model is a simple implementation of a window, to compare with.
type model struct {
	t      *testing.T
	w      window
	now    time.Time
	all    []*entry // every record ever added and not truncated, in order
	states map[*entry]state
	trail  []string // the operations so far
	cut    int64    // offset of the last cut that moved the mark back
}

func newModel(t *testing.T) *model {
	return &model{t: t, w: newWindow(-1, -1), now: time.Unix(1_000_000, 0), states: map[*entry]state{}, cut: -1}
}

func (m *model) did(format string, args ...any) {
	m.trail = append(m.trail, fmt.Sprintf(format, args...))
}

func (m *model) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter %v", fmt.Sprintf(format, args...), m.trail)
}

func (m *model) add(offset int64, epoch int32, key string) {
	m.did("add %d %s", offset, key)
	p := &entry{offset: offset, epoch: epoch, size: 10, key: key}
	m.w.add(p)
	m.all, m.states[p] = append(m.all, p), fresh
	m.check()
}

// take checks the rule of [pawl.Source]: a record of a key is not handed out while an earlier one
// is out from an earlier take, or waits.
func (m *model) take(limit int) {
	before := map[string]bool{}
	for _, p := range m.all {
		if m.states[p] == out {
			before[p.key] = true
		}
	}
	taken := m.w.take(limit, m.now)
	m.did("take %d: %d", limit, len(taken))
	if len(taken) > limit {
		m.fatal("%d were taken, allowed were %d", len(taken), limit)
	}
	last := int64(-1)
	for _, p := range taken {
		switch {
		case p.offset <= last:
			m.fatal("offset %d came after %d", p.offset, last)
		case m.states[p] == waiting && p.due.After(m.now):
			m.fatal("offset %d came before its delay was over", p.offset)
		case m.states[p] != fresh && m.states[p] != waiting:
			m.fatal("offset %d was taken twice", p.offset)
		case p.key != "" && before[p.key]:
			m.fatal("offset %d of %s came while another is out", p.offset, p.key)
		}
		last = p.offset
		m.states[p] = out
	}
	for _, p := range taken {
		for _, earlier := range m.all {
			if earlier.offset < p.offset && earlier.key == p.key && p.key != "" && m.states[earlier] != settled && m.states[earlier] != out {
				m.fatal("offset %d of %s came before %d", p.offset, p.key, earlier.offset)
			}
		}
	}
	m.check()
}

func (m *model) settle(p *entry) {
	want := m.states[p] == out
	m.did("settle %d", p.offset)
	if got := m.w.settle(p); got != want {
		m.fatal("settle of %d answers %v", p.offset, got)
	}
	if want {
		m.states[p] = settled
	}
	m.check()
}

func (m *model) release(p *entry, delay time.Duration) {
	want := m.states[p] == out
	m.did("release %d %v", p.offset, delay)
	if got := m.w.release(p, m.now.Add(delay), m.now); got != want {
		m.fatal("release of %d answers %v", p.offset, got)
	}
	if want {
		m.states[p] = waiting
	}
	m.check()
}

func (m *model) begin(p *entry) {
	m.did("begin %d", p.offset)
	if got := m.w.begin(p); got != (m.states[p] == out) {
		m.fatal("begin of %d answers %v", p.offset, got)
	}
	m.check()
}

func (m *model) truncate(at int64) {
	m.did("truncate %d", at)
	if m.w.mark > at {
		m.cut = at
	}
	m.w.truncate(at, 9)
	kept := m.all[:0:0]
	for _, p := range m.all {
		if p.offset < at {
			kept = append(kept, p)
		} else {
			m.states[p] = void
		}
	}
	m.all = kept
	m.check()
}

// check compares the window with the model. Above all, the mark passes no unsettled record.
func (m *model) check() {
	m.t.Helper()
	unsettled, octets, started, passed := 0, 0, 0, int64(-1)
	run := true
	for _, p := range m.all {
		if m.states[p] != settled {
			unsettled, octets, run = unsettled+1, octets+p.size, false
			if m.w.mark > p.offset {
				m.fatal("the mark %d passes offset %d, which is not settled", m.w.mark, p.offset)
			}
		} else if run {
			passed = p.offset
		}
		if p.started {
			started++
		}
	}
	if passed >= 0 && m.w.mark != max(passed+1, m.cut) {
		m.fatal("the mark is %d, and everything to %d is settled", m.w.mark, passed)
	}
	if m.w.unsettled != unsettled || m.w.octets != octets || m.w.started != started {
		m.fatal("unsettled %d, octets %d, started %d: want %d, %d, %d", m.w.unsettled, m.w.octets, m.w.started, unsettled, octets, started)
	}
}

// In every order of settling and releasing four records, the mark passes only settled records.
func TestWindow_EveryOrder(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"", "", "", ""}, {"a", "a", "a", "a"}, {"a", "b", "a", "b"}, {"a", "", "a", "b"}} {
		// Each step does one of: take 1, take 4, settle i, release i at once, release i for later.
		const steps, choices = 4, 2 + 3*4
		total := 1
		for range steps {
			total *= choices
		}
		for code := range total {
			m := newModel(t)
			for i, key := range keys {
				m.add(int64(10+3*i), 1, key) // with gaps
			}
			m.take(4) // from here on they are out
			for c, n := code, 0; n < steps; c, n = c/choices, n+1 {
				switch what := c % choices; {
				case what == 0:
					m.take(1)
				case what == 1:
					m.take(4)
				case what < 6:
					m.settle(m.all[what-2])
				case what < 10:
					m.release(m.all[what-6], 0)
				default:
					m.release(m.all[what-10], time.Second)
				}
			}
		}
	}
}

// The same with random operations, among them new records, passing time, started work and cut logs.
func TestWindow_AnyOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 300 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		m := newModel(t)
		next, epoch := rng.Int64N(5), int32(1)
		keys := []string{"", "a", "b", "c"}[:1+rng.IntN(4)]
		for range 300 {
			one := func() *entry { return m.all[rng.IntN(len(m.all))] }
			switch what := rng.IntN(20); {
			case what < 6:
				m.add(next, epoch, keys[rng.IntN(len(keys))])
				next += 1 + rng.Int64N(3)
			case what < 10:
				m.take(1 + rng.IntN(6))
			case len(m.all) == 0:
			case what < 15:
				m.settle(one())
			case what < 17:
				m.release(one(), time.Duration(rng.IntN(3))*time.Second)
			case what < 18:
				m.begin(one())
			case what < 19:
				m.now = m.now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			case rng.IntN(5) == 0:
				next = rng.Int64N(next + 1)
				epoch++
				m.truncate(next)
			}
		}
		// In the end all records can be settled, and the mark is after the last one.
		m.now = m.now.Add(time.Hour)
		for range 2 * len(m.all) {
			m.take(100)
			for _, p := range m.all {
				if m.states[p] == out {
					m.settle(p)
				}
			}
		}
		if m.w.unsettled != 0 || m.w.span() != 0 {
			m.fatal("%d are left", m.w.unsettled)
		}
		if n := len(m.all); n > 0 && m.w.mark != max(m.all[n-1].offset+1, m.cut) {
			m.fatal("the mark is %d in the end, the last offset %d", m.w.mark, m.all[n-1].offset)
		}
		if len(m.w.outs) != 0 || len(m.w.todo) != 0 {
			m.fatal("left over: %v %v", m.w.outs, m.w.todo)
		}
	}
}

// A cut moves the mark back if it is beyond the cut. Settled records before the cut stay settled.
func TestWindow_TruncationMovesTheMarkBack(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	for offset := range int64(10) {
		m.add(offset, 1, "")
	}
	m.take(10)
	for _, p := range m.all[:8] {
		m.settle(p)
	}
	late := m.all[9]
	m.truncate(5)
	if m.w.mark != 5 || m.w.next != 5 {
		t.Errorf("the mark is %d, next %d: want 5", m.w.mark, m.w.next)
	}
	m.settle(late) // no effect: the record was cut
	m.add(5, 2, "")
	if m.w.mark != 5 {
		t.Errorf("the mark is %d", m.w.mark)
	}
}
