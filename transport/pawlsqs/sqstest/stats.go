package sqstest

import "time"

// Stats count what happened to a queue's messages since it was created, and where they are now.
type Stats struct {
	Sent         int64 // messages accepted
	Received     int64 // hand-outs, redeliveries included
	Redelivered  int64 // hand-outs of a message handed out before, here or in the queue it came from
	Deleted      int64 // messages deleted
	Purged       int64 // messages removed by PurgeQueue
	TooOld       int64 // messages dropped at the end of the retention period
	DeadLettered int64 // messages moved to the dead-letter queue
	Redriven     int64 // messages moved out of this dead-letter queue by a move task
	Deduplicated int64 // sends to a FIFO queue that it had seen in the last five minutes

	Duplicated   int64 // second copies made by Faults.Duplicate
	LostDeletes  int64 // deletes answered OK and lost by Faults.LoseDelete
	LostReceives int64 // messages whose hand-out never arrived: Faults.LoseReceive or Cut
	Abandoned    int64 // messages taken by a poll whose client had gone: Faults.AbandonedPolls
	Refused      int64 // calls answered with an error by Faults.Fail

	Ready, Delayed, InFlight int // messages in each place now
}

// Stats returns the counts of a queue by name; a queue that does not exist has none.
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
