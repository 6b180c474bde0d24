package counted

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// A setLog is a log whose committed offset a test sets.
type setLog struct {
	mu    sync.Mutex
	at    int64
	reads int
}

// set changes the offset and waits until the watch has judged it. The watch judges an offset before
// it reads the next one.
func (l *setLog) set(t *testing.T, at int64) {
	l.mu.Lock()
	l.at = at
	before := l.reads
	l.mu.Unlock()
	patience.Until(t, "the offset is read", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.reads >= before+2
	})
}

func (l *setLog) committed(context.Context, Queue) (map[string]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return map[string]int64{"log/0": l.at}, nil
}

// The watch finds an offset that passes a record without an outcome and one that decreases, and
// nothing else.
func TestWatchOffsets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offsets []int64
		wants   string // "" if all is well
	}{
		"behind what is settled":   {[]int64{0, 1, 3}, ""},
		"past what is out":         {[]int64{0, 3, 4}, "log/0: 4 is committed, and the record at 3 (order-3) has no outcome"},
		"back, as a zombie writes": {[]int64{3, 1}, "log/0: the committed offset went back from 3 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &setLog{}
			s := &stage{TB: t, transport: Transport{Committed: log.committed}, pool: pawltest.DB(t, tables), verdict: &Verdict{}}
			s.witness = newWitness(t)
			for n := range 5 {
				s.witness.received(entry{What: received, Key: fmt.Sprint("order-", n), Log: "log/0", Offset: int64(n)})
			}
			_, err := s.pool.Exec(t.Context(), `insert into pawl.inbox (consumer, key, hash, processed_at)
				select $1, 'order-' || n, sha256('x'), now() from generate_series(0, 2) as n`, consumerName)
			s.must(err)
			stop := s.watchOffsets()
			for _, at := range c.offsets {
				log.set(t, at)
			}
			reads := stop()
			found := strings.Join(s.verdict.Broken, "\n")
			if reads < len(c.offsets) || c.wants == "" && found != "" || !strings.Contains(found, c.wants) {
				t.Errorf("%d reads found %q, want %q", reads, found, c.wants)
			}
		})
	}
}
