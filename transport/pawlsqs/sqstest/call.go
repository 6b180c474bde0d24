package sqstest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/pace"
)

type request struct {
	ctx  context.Context
	op   string
	body []byte
	base string // endpoint, for queue URLs
	url  string // QueueUrl, if the body has one; set by Server.call
	call Call   // for hooks; set by Server.call
}

// operation performs one call. Its result is encoded as JSON.
type operation func(*Server, *request) (any, *Error)

var operations = map[string]operation{
	"CreateQueue":                  onServer((*Server).createQueue),
	"GetQueueUrl":                  onServer((*Server).getQueueURL),
	"ListQueues":                   onServer((*Server).listQueues),
	"ListDeadLetterSourceQueues":   onQueue((*queue).listDeadLetterSources),
	"StartMessageMoveTask":         onServer((*Server).startMove),
	"ListMessageMoveTasks":         onServer((*Server).listMoves),
	"CancelMessageMoveTask":        onServer((*Server).cancelMove),
	"TagQueue":                     onQueue((*queue).tagQueue),
	"UntagQueue":                   onQueue((*queue).untagQueue),
	"ListQueueTags":                onQueue((*queue).listTags),
	"DeleteQueue":                  onQueue((*queue).deleteQueue),
	"GetQueueAttributes":           onQueue((*queue).getAttributes),
	"SetQueueAttributes":           onQueue((*queue).setAttributes),
	"PurgeQueue":                   onQueue((*queue).purgeQueue),
	"SendMessage":                  onQueue((*queue).sendMessage),
	"SendMessageBatch":             onQueue((*queue).sendBatch),
	"ReceiveMessage":               onQueue((*queue).receiveMessage),
	"DeleteMessage":                onQueue((*queue).deleteMessage),
	"DeleteMessageBatch":           onQueue((*queue).deleteBatch),
	"ChangeMessageVisibility":      onQueue((*queue).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": onQueue((*queue).changeVisibilityBatch),
}

func (s *Server) call(r request) (any, *Error) {
	do, known := operations[r.op]
	switch {
	case r.op == "AddPermission", r.op == "RemovePermission":
		return nil, unsupported("%s is not simulated.", r.op)
	case !known:
		return nil, failure("InvalidAction", "", "The action %s is not valid for this endpoint.", r.op)
	}
	faults := s.faults.Load()
	r.call = s.count(&r)
	if faults.Latency != nil && !pace.Sleep(r.ctx, faults.Latency(r.call)) {
		return nil, errCut
	}
	if fail := faults.fail(r.call); fail != nil {
		s.note(r.call.Queue, func(st *Stats) { st.Refused++ })
		return nil, fail
	}
	if q := s.named(r.call.Queue); q != nil && !q.withinQuota(r.op) {
		s.note(q.name, func(st *Stats) { st.Refused++ })
		return nil, Throttled()
	}
	result, fail := do(s, &r)
	if fail != nil {
		return nil, fail
	}
	received, _ := result.(receiveResult)
	if faults.cut(r.call, len(received.Messages)) {
		s.note(r.call.Queue, func(st *Stats) { st.LostReceives += int64(len(received.Messages)) })
		return nil, errCut
	}
	return result, nil
}

// count numbers the call within its operation and queue. It takes the queue from the body.
func (s *Server) count(r *request) Call {
	var named struct{ QueueUrl string }
	_ = json.Unmarshal(r.body, &named) // the operation refuses a body that is not JSON
	r.url = named.QueueUrl
	_, name, _ := nameOf(r.url)
	call := Call{Op: r.op, Queue: name}
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	s.calls[call]++
	call.N = s.calls[call]
	return call
}

// note counts an event in the stats of a queue, if it exists.
func (s *Server) note(queue string, event func(*Stats)) {
	if q := s.named(queue); q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		event(&q.stats)
	}
}

// onServer makes an operation of a function on the server.
func onServer[T any](do func(*Server, *request, *T) (any, *Error)) operation {
	return func(s *Server, r *request) (any, *Error) {
		in := new(T)
		if err := json.Unmarshal(r.body, in); err != nil {
			return nil, failure("SerializationException", "", "%s", unreadable(err))
		}
		return do(s, r, in)
	}
}

// onQueue makes an operation of a function on the queue that the request names.
func onQueue[T any](do func(*queue, *request, *T) (any, *Error)) operation {
	return onServer(func(s *Server, r *request, in *T) (any, *Error) {
		q, failed := s.find(r.url)
		if failed != nil {
			return nil, failed
		}
		return do(q, r, in)
	})
}

func (s *Server) find(queueURL string) (*queue, *Error) {
	if queueURL == "" {
		return nil, missing("QueueUrl")
	}
	account, name, ok := nameOf(queueURL)
	if !ok {
		return nil, failure("InvalidAddress", "", "The address %s is not valid for this endpoint.", queueURL)
	}
	if q := s.named(name); q != nil && account == s.account {
		return q, nil
	}
	return nil, noSuchQueue()
}

func secondsOr(member *int, otherwise time.Duration) time.Duration {
	return time.Duration(or(member, int(otherwise/time.Second))) * time.Second
}

// or returns the value of an optional member, or else otherwise.
func or(member *int, otherwise int) int {
	if member == nil {
		return otherwise
	}
	return *member
}

// unreadable describes an invalid body in the protocol's terms, without names of Go types.
func unreadable(err error) string {
	var mismatch *json.UnmarshalTypeError
	var encoding base64.CorruptInputError
	switch {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Sprintf("The member %s cannot be a JSON %s.", mismatch.Field, mismatch.Value)
	case errors.As(err, &mismatch):
		return fmt.Sprintf("The body must be a JSON object, it is a %s.", mismatch.Value)
	case errors.As(err, &encoding):
		return "A binary value is not encoded as base64."
	}
	return "The body is not valid JSON."
}
