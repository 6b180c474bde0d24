//go:build proof

package pawlkafka

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Commit commits the due offsets, as the next tick would.
func Commit(ctx context.Context, s *Source) error {
	return s.commit(ctx, "kafka.commit", nil, false, func() {})
}

// Describe returns a source's state, for the failure message of a test.
func Describe(s *Source) string {
	var to strings.Builder
	member, generation := s.client.GroupMetadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&to, "member %s, generation %d, stopped %t, finishing %t, crowded %t, octets %d, troubled since %v, errors %v\n",
		member, generation, s.stopped, s.finishing, s.crowded, s.octets, s.troubled.Format(time.TimeOnly), s.errs)
	fmt.Fprintf(&to, "  the client has paused %v and topics %v, and buffers %d records\n",
		s.client.PauseFetchPartitions(nil), s.client.PauseFetchTopics(), s.client.BufferedFetchRecords())
	for _, p := range s.order {
		fmt.Fprintf(&to, "  %s: mark %d, next %d, committed %d, taken %d, unsettled %d, begun %d, to hand out %d, leaving %t, paused %t, counted %t, fetched %t, keys out %v\n",
			p, p.mark, p.next, p.commit.offset, p.taken, p.unsettled, p.window.started, len(p.todo), p.leaving, p.paused, p.counted, p.fetched, p.outs)
		for _, at := range p.entries[:min(5, len(p.entries))] {
			fmt.Fprintf(&to, "    offset %d: state %d, begun %t, handed out %d times, key %q\n", at.offset, at.state, at.started, at.handed, at.key)
		}
	}
	return to.String()
}

// Mutants of this transport.
const (
	HighestSettled = "commit the highest settled"
	AfterRevoke    = "commit after a revoke"
	NoWait         = "a revoke waits for nothing"
)

// Break applies a mutant to a source.
func Break(s *Source, mutant string) {
	switch mutant {
	case HighestSettled:
		s.due = func(p *partition, final bool) (kgo.EpochOffset, commitment, bool) {
			at, c, due := p.due(final)
			for _, one := range p.entries {
				if one.state == settled {
					at, c.offset = kgo.EpochOffset{Epoch: one.epoch, Offset: one.offset + 1}, one.offset+1
				}
			}
			return at, c, due || c.offset > p.commit.offset && !p.gone && p.fetched
		}
	case AfterRevoke:
		go s.commitAfterRevokes()
	case NoWait:
		s.revokeWait = 0
	}
}

// commitAfterRevokes commits the mark of each revoked partition one second after the revoke.
func (s *Source) commitAfterRevokes() {
	seen := map[*partition]bool{}
	for range time.Tick(20 * time.Millisecond) {
		s.mu.Lock()
		var gone []*partition
		for p := range seen {
			if p.gone {
				gone = append(gone, p)
				delete(seen, p)
			}
		}
		for _, p := range s.order {
			seen[p] = true
		}
		s.mu.Unlock()
		for _, p := range gone {
			time.AfterFunc(time.Second, func() {
				if p.mark >= 0 {
					s.client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{p.topic: {p.id: {Epoch: p.markEpoch, Offset: p.mark}}}, nil)
				}
			})
		}
	}
}
