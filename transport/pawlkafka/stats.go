package pawlkafka

import (
	"context"
	"sync/atomic"

	"github.com/pawl-go/pawl"
)

// Stats counts since Open, except Partitions, Held and Buffered, which are current values.
type Stats struct {
	Received       int64 // deliveries handed out
	ReceiveErrors  int64 // Receives that failed on a fetch, the group join or a commit
	Acked          int64 // deliveries settled
	Released       int64 // deliveries released
	LostHandles    int64 // deliveries settled or released too late, or lost while out
	Assigned       int64 // partitions assigned
	Revoked        int64 // partitions revoked cleanly
	Lost           int64 // partitions lost because the session expired
	Commits        int64 // one per partition of a commit
	CommitFailures int64 // commits that failed in part or whole, and are retried
	Partitions     int   // assigned now
	Held           int   // deliveries out now
	Buffered       int   // records in memory, not handed out
}

type counters struct {
	received, receiveErrors, acked, released, lostHandles, assigned, revoked, lost, commits, commitFailures atomic.Int64
}

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	c := &s.counters
	st := Stats{
		Received: c.received.Load(), ReceiveErrors: c.receiveErrors.Load(), Acked: c.acked.Load(), Released: c.released.Load(),
		LostHandles: c.lostHandles.Load(), Assigned: c.assigned.Load(), Revoked: c.revoked.Load(), Lost: c.lost.Load(),
		Commits: c.commits.Load(), CommitFailures: c.commitFailures.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Partitions = len(s.order)
	for _, p := range s.order {
		st.Buffered += len(p.todo)
		st.Held += p.unsettled - len(p.todo)
	}
	return st
}

// A Backlog is how much the group has left to receive. Scale by it.
type Backlog struct {
	Records    int64 // Offsets between the commits and the ends of the logs, including gaps.
	Partitions int   // more members than this are idle
}

// Backlog asks the cluster how much is left for the group.
func (s *Source) Backlog(ctx context.Context) (Backlog, error) {
	const op = "kafka.backlog"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	commits, err := s.admin.FetchOffsetsForTopics(ctx, s.group, s.topics...)
	if err != nil {
		return Backlog{}, wrap(op, s.group, err)
	}
	starts, err := s.admin.ListStartOffsets(ctx, s.topics...)
	if err != nil {
		return Backlog{}, wrap(op, s.group, err)
	}
	ends, err := s.admin.ListEndOffsets(ctx, s.topics...)
	if err != nil {
		return Backlog{}, wrap(op, s.group, err)
	}
	var b Backlog
	for topic, partitions := range ends {
		for id, end := range partitions {
			if end.Err != nil {
				return Backlog{}, &pawl.Error{Op: op, Err: end.Err}
			}
			from := starts[topic][id].Offset
			if c, there := commits.Lookup(topic, id); there && c.At > from {
				from = c.At
			}
			b.Records += max(end.Offset-from, 0)
			b.Partitions++
		}
	}
	return b, nil
}
