package sqstest

import (
	"cmp"
	"slices"
	"time"
)

// A moveTask moves the messages of a dead-letter queue back to their source queues, or to one
// destination. Each becomes a new message with a new id, a new send time and a receive count of 0
// ("Learn how to configure a dead-letter queue redrive"). Body and attributes stay: AWS documents
// no loss of attributes.
type moveTask struct {
	handle      string
	source      *queue
	destination string // ARN; empty: each message to its source queue
	rate        int    // messages a second; 0: unlimited
	started     time.Time
	toMove      int

	// Guarded by Server.mu.
	moved  int
	status string
	stop   chan struct{}
}

type moveRequest struct {
	SourceArn, DestinationArn    string
	MaxNumberOfMessagesPerSecond int
}

func (s *Server) startMove(_ *request, in *moveRequest) (any, *Error) {
	source, failed := s.deadLetterQueueOf(in.SourceArn)
	if failed != nil {
		return nil, failed
	}
	if in.DestinationArn != "" {
		switch to := s.byARN(in.DestinationArn); {
		case to == nil:
			return nil, noSuchResource("destination")
		case to == source:
			return nil, invalidParameter(in.DestinationArn, "DestinationArn", "Source queue arn and destination queue arn must be different.")
		case (to.fifo != nil) != (source.fifo != nil):
			return nil, invalidParameter(in.DestinationArn, "DestinationArn", "Source and destination queues must be of the same type.")
		}
	}
	if in.MaxNumberOfMessagesPerSecond < 0 || in.MaxNumberOfMessagesPerSecond > maxMoveRate {
		return nil, invalidParameter(in.MaxNumberOfMessagesPerSecond, "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500, if provided.")
	}
	source.mu.Lock()
	ready := source.ready
	source.mu.Unlock()
	t := &moveTask{handle: newID(), source: source, destination: in.DestinationArn, rate: in.MaxNumberOfMessagesPerSecond,
		started: time.Now(), toMove: ready, status: "RUNNING", stop: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.moves {
		if other.source == source && other.status == "RUNNING" {
			return nil, unsupportedByAWS("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
		}
	}
	s.moves = append(s.moves, t)
	go s.move(t)
	return struct{ TaskHandle string }{t.handle}, nil
}

// deadLetterQueueOf returns the queue, if another queue names it as its dead-letter queue.
func (s *Server) deadLetterQueueOf(arn string) (*queue, *Error) {
	if arn == "" {
		return nil, missing("SourceArn")
	}
	source := s.byARN(arn)
	if source == nil {
		return nil, noSuchResource("source")
	}
	if len(s.sourcesOf(source)) == 0 {
		return nil, invalidParameter(arn, "SourceArn", "Source queue must be configured as a Dead Letter Queue.")
	}
	return source, nil
}

func (s *Server) move(t *moveTask) {
	status := "COMPLETED"
	for range t.toMove {
		if t.rate > 0 && !t.pause(time.Second/time.Duration(t.rate)) {
			status = "CANCELLED"
			break
		}
		if !s.moveOne(t) {
			break
		}
		s.mu.Lock()
		t.moved++
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.status == "RUNNING" || t.status == "CANCELLING" {
		t.status = status
	}
}

func (t *moveTask) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.stop:
		return false
	}
}

// moveOne moves the next ready message. It returns false if there is none, or if the target queue
// does not exist.
func (s *Server) moveOne(t *moveTask) bool {
	now := time.Now()
	q := t.source
	q.mu.Lock()
	q.advance(now)
	m := q.shelf.next(func(int) int { return 0 })
	q.shelf.served()
	if m == nil {
		q.mu.Unlock()
		return false
	}
	target := cmp.Or(t.destination, m.source)
	q.mu.Unlock()
	to := s.byARN(target)
	if to == nil || !q.giveAway(m) {
		return false
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	again := &message{id: newID(), body: m.body, attributes: m.attributes, trace: m.trace, group: m.group, dedup: m.dedup, sent: now}
	to.insert(again, 0, now)
	return true
}

func (q *queue) giveAway(m *message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m.state != ready {
		return false
	}
	q.remove(m)
	q.stats.Redriven++
	return true
}

type moveResult struct {
	TaskHandle                        string `json:",omitempty"` // for running tasks only
	SourceArn, Status                 string
	DestinationArn                    string `json:",omitempty"`
	MaxNumberOfMessagesPerSecond      int    `json:",omitempty"`
	ApproximateNumberOfMessagesMoved  int
	ApproximateNumberOfMessagesToMove int
	StartedTimestamp                  int64
}

func (s *Server) listMoves(_ *request, in *struct {
	SourceArn  string
	MaxResults *int
}) (any, *Error) {
	source, failed := s.deadLetterQueueOf(in.SourceArn)
	if failed != nil {
		return nil, failed
	}
	most := or(in.MaxResults, 1)
	if most < 1 || most > maxMoveTasks {
		return nil, invalidParameter(most, "MaxResults", "Must be between 1 and 10, if provided.")
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	results := []moveResult{}
	for _, t := range slices.Backward(s.moves) {
		if t.source != source || len(results) == most {
			continue
		}
		one := moveResult{SourceArn: source.arn, DestinationArn: t.destination, Status: t.status, MaxNumberOfMessagesPerSecond: t.rate,
			ApproximateNumberOfMessagesMoved: t.moved, ApproximateNumberOfMessagesToMove: t.toMove, StartedTimestamp: t.started.UnixMilli()}
		if t.status == "RUNNING" {
			one.TaskHandle = t.handle
		}
		results = append(results, one)
	}
	return struct{ Results []moveResult }{results}, nil
}

func (s *Server) cancelMove(_ *request, in *struct{ TaskHandle string }) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.moves {
		if t.handle == in.TaskHandle && t.status == "RUNNING" {
			t.status = "CANCELLING"
			close(t.stop)
			return struct{ ApproximateNumberOfMessagesMoved int }{t.moved}, nil
		}
	}
	return nil, noSuchResource("task")
}
