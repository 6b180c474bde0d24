package sqstest

import "time"

// Stats count messages and calls of a queue since it was created, and the messages in each state
// now.
type Stats struct {
	Sent         int64 // messages accepted
	Received     int64 // receives of messages, redeliveries included
	Redelivered  int64 // receives of a message received before, here or in its source queue
	Deleted      int64 // messages deleted
	Purged       int64 // messages removed by PurgeQueue
	TooOld       int64 // messages dropped at the end of the retention period
	DeadLettered int64 // messages moved to the dead-letter queue
	Redriven     int64 // messages moved out of this dead-letter queue by a move task
	Deduplicated int64 // sends that a FIFO queue recognised from the last five minutes

	Duplicated   int64 // second copies made by Faults.Duplicate
	LostDeletes  int64 // deletes answered with OK and lost by Faults.LoseDelete
	LostReceives int64 // messages received in a lost response: Faults.LoseReceive or Cut
	// Abandoned counts messages taken by polls after their client disconnected:
	// Faults.AbandonedPolls.
	Abandoned int64
	Refused   int64 // calls refused by Faults.Fail or the FIFO quota

	Ready, Delayed, InFlight int // messages in each state now
}

// Stats returns the counts of the named queue, or zeros if it does not exist.
func (s *Server) Stats(queue string) Stats {
	q := s.named(queue)
	if q == nil {
		return Stats{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance(time.Now())
	stats := q.stats
	stats.Ready, stats.Delayed, stats.InFlight = q.ready, q.delayed, q.inFlight
	return stats
}
