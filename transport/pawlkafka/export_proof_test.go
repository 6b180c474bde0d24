//go:build proof

package pawlkafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Commit commits what is settled now, as the next tick would.
func Commit(ctx context.Context, s *Source) error {
	return s.commit(ctx, "kafka.commit", everyPartition, false)
}

// The mutants of this transport.
const (
	HighestSettled = "commit the highest settled"
	AfterRevoke    = "commit after a revoke"
	NoWait         = "a revoke waits for nothing"
)

// Break makes a source break a promise.
func Break(s *Source, mutant string) {
	switch mutant {
	case HighestSettled:
		s.due = func(p *partition, final bool) (kgo.EpochOffset, commitment, bool) {
			at, c, due := p.due(final)
			for _, one := range p.places {
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

// commitAfterRevokes commits of each partition that has gone where its mark stood, a second later.
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
