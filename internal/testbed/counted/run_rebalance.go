package counted

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/pace"
)

// Rebalance lets consumers of a log join and leave while handlers take up to 3 s. It reads the
// committed offset ten times a second. The offset never passes a record without an outcome in the
// database, and never decreases.
var Rebalance = Run{Name: "rebalance",
	lacks: func(tr Transport) string {
		if tr.Committed == nil {
			return "it has no committed offset"
		}
		return ""
	},
	play: func(s *stage) error {
		s.assign = func(a *assignment, _ int) { a.Most = 3 * time.Second }
		if err := s.start(2); err != nil {
			return err
		}
		load := s.flow(6, s.sendNew)
		watch := s.watchOffsets()
		for n := range sized(8, 50) {
			pause := time.Second + time.Duration(s.random.IntN(2000))*time.Millisecond
			pace.Sleep(s.Context(), pause)
			if n%2 == 0 {
				if _, err := s.crew.Add(s.Context(), 3+n); err != nil {
					return err
				}
				s.verdict.fault("join")
				continue
			}
			w, err := s.pick(anyWorker)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(s.Context(), stopLimit)
			_, err = s.crew.Stop(ctx, w)
			cancel()
			if err != nil {
				s.verdict.breaks("%v", err)
				s.crew.Kill(w)
			}
			s.verdict.fault("leave")
		}
		if err := load.end(); err != nil {
			return err
		}
		err := s.settle()
		reads := watch()
		s.verdict.figure("reads of committed offsets", float64(reads))
		s.verdict.needs(reads > 10, "the committed offset was hardly ever read")
		return err
	}}

// watchOffsets compares committed offsets with the database until stop is called. stop returns the
// number of reads.
func (s *stage) watchOffsets() (stop func() (reads int)) {
	ctx, cancel := context.WithCancel(s.Context())
	done, reads := make(chan struct{}), 0
	go func() {
		defer close(done)
		for seen := map[string]int64{}; pace.Sleep(ctx, 100*time.Millisecond); {
			// Read the offsets before the rows, so that an outcome committed in between counts.
			committed, err := s.transport.Committed(ctx, s.queue)
			if err != nil {
				continue // retry: the error may be temporary
			}
			reads++
			for log, offset := range committed {
				if offset < seen[log] {
					s.verdict.breaks("%s: the committed offset went back from %d to %d", log, seen[log], offset)
				}
				if err := s.outcomes(ctx, log, seen[log], offset); err != nil && ctx.Err() == nil {
					s.verdict.breaks("reading outcomes: %v", err)
				}
				seen[log] = max(seen[log], offset)
			}
		}
	}()
	return func() int {
		cancel()
		<-done
		return reads
	}
}

// outcomes requires that each delivered record below the committed offset is in the inbox. The
// inbox also has the records that were stored as jobs.
func (s *stage) outcomes(ctx context.Context, log string, from, to int64) error {
	delivered := s.witness.below(log, from, to)
	if len(delivered) == 0 {
		return nil
	}
	missing, err := s.missing(ctx, slices.Collect(maps.Keys(delivered)))
	for _, key := range missing {
		s.verdict.breaks("%s: %d is committed, and the record at %d (%s) has no outcome", log, to, delivered[key], key)
	}
	return err
}

// missing returns the keys without a row in the inbox.
func (s *stage) missing(ctx context.Context, keys []string) ([]string, error) {
	rows, err := s.pool.Query(ctx, `select k.key from unnest($1::text[]) as k (key)
		where not exists (select from pawl.inbox as i where i.consumer = $2 and i.key = k.key)`, keys, consumerName)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
