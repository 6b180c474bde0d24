package sqstest

import "time"

// Faults are hooks that make the service misbehave; a nil hook does nothing. Set them with
// [Options] or [Server.SetFaults]. Hooks are called from many goroutines, some while a queue is
// locked. They must return quickly and must not call the server. For repeatable runs give them no
// state of their own, as [Chaos] does.
type Faults struct {
	// Fail returns an error before the call changes anything: see [Throttled] and [Internal].
	Fail func(Call) *Error
	// FailEntry fails one entry of a batch before it changes anything; the others succeed. An
	// [Internal] failure is reported with SenderFault false.
	FailEntry func(c Call, entry int) *Error
	// Latency delays a call before it is processed.
	Latency func(Call) time.Duration
	// Cut performs the call and then drops the connection instead of responding. The client sees a
	// network that failed after the effect.
	Cut func(Call) bool
	// LoseReceive is Cut for a receive that took messages. They are in flight and no client has
	// their handles.
	LoseReceive func(c Call, messages int) bool
	// Empty makes a short poll return nothing although messages are ready, as sampling a few
	// servers does ("Amazon SQS short and long polling").
	Empty func(Call) bool
	// Fewer returns how many messages a receive may return, at least 1 and at most max, even if
	// more are ready: "fewer messages might be returned" (ReceiveMessage).
	Fewer func(c Call, max int) int
	// Reorder picks which of the n longest-ready messages (at most 128) is handed out next: 0 keeps
	// the order. pick counts the messages handed out by this queue, from 1. In a FIFO queue it
	// picks among the groups.
	Reorder func(queue string, pick int64, n int) int
	// Duplicate leaves a second copy ready while the first is in flight. Deleting one does not
	// delete the other. AWS describes it as the copy on a server that could not be reached ("Amazon
	// SQS at-least-once delivery"). Copies are not copied again, and FIFO queues make none.
	Duplicate func(Arrival) bool
	// LoseDelete answers a delete with OK and keeps the message. It returns when its visibility
	// timeout ends.
	LoseDelete func(Arrival) bool
	// AbandonedPolls lets a long poll continue after its client disconnected. It takes messages,
	// which stay hidden until their timeout. This was reported of the real service (aws-sdk-go-v2
	// #2068). Without it a poll ends with its client.
	AbandonedPolls bool
}

// A Call is one request.
type Call struct {
	Op    string // "ReceiveMessage"
	Queue string // name of the queue; empty for calls without one
	N     int64  // this is the N-th call of Op on Queue, from 1
}

// An Arrival is one receive of one message.
type Arrival struct {
	Queue     string
	MessageID string
	Body      string
	Number    int64 // number of the message in this queue, from 1, copies included
	Receives  int   // receives in this queue, this one included
}

func (f *Faults) fail(c Call) *Error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(c)
}

func (f *Faults) failEntry(c Call, entry int) *Error {
	if f.FailEntry == nil {
		return nil
	}
	return f.FailEntry(c, entry)
}

func (f *Faults) cut(c Call, messages int) bool {
	if messages > 0 && f.LoseReceive != nil && f.LoseReceive(c, messages) {
		return true
	}
	return f.Cut != nil && f.Cut(c)
}

func (f *Faults) fewer(c Call, most int) int {
	if f.Fewer == nil {
		return most
	}
	return min(max(f.Fewer(c, most), 1), most)
}

func (f *Faults) pick(queue string, pick int64, n int) int {
	n = min(n, reorderWindow)
	if f.Reorder == nil || n < 2 {
		return 0
	}
	return min(max(f.Reorder(queue, pick, n), 0), n-1)
}
