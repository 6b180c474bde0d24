package sqstest

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// A fifo is what a FIFO queue knows beside its messages: its recent sends, receives and calls.
type fifo struct {
	sent     map[string]sending
	sends    list.List // of deduplication keys, oldest first
	attempts map[string]attempt
	sequence uint64
	calls    map[string]int // calls by action, since second
	second   time.Time
}

// A sending is the response to a repeated MessageDeduplicationId.
type sending struct {
	id       string
	sequence uint64
	at       time.Time
}

// An attempt is the response to a repeated ReceiveRequestAttemptId.
type attempt struct {
	at       time.Time
	messages []*message
	handles  []string
}

var fifoID = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]+$")

func validFIFOID(id string) bool { return len(id) <= maxFIFOID && fifoID.MatchString(id) }

// checkFIFO applies the rules of SendMessage to the group and the deduplication id. With
// content-based deduplication it sets the id to the body's hash.
func checkFIFO(in *sendRequest, set settings) *Error {
	switch {
	case !set.fifo && in.MessageDeduplicationId != "":
		return invalidParameter(in.MessageDeduplicationId, "MessageDeduplicationId",
			"The request include parameter that is not valid for this queue type")
	case in.MessageGroupId != "" && !validFIFOID(in.MessageGroupId):
		return invalidParameter(in.MessageGroupId, "MessageGroupId", "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	case !set.fifo:
		return nil
	case in.MessageGroupId == "":
		return missing("MessageGroupId")
	case in.DelaySeconds != nil && *in.DelaySeconds != 0:
		return invalidParameter(*in.DelaySeconds, "DelaySeconds", "The request include parameter that is not valid for this queue type.")
	case in.MessageDeduplicationId == "" && !set.contentBased:
		return invalidValue("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	case in.MessageDeduplicationId == "":
		sum := sha256.Sum256([]byte(in.MessageBody)) // attributes are not part of the hash
		in.MessageDeduplicationId = hex.EncodeToString(sum[:])
	case !validFIFOID(in.MessageDeduplicationId):
		return invalidParameter(in.MessageDeduplicationId, "MessageDeduplicationId",
			"MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return nil
}

// seen finds the first send with the same deduplication id in the last five minutes, even if its
// message is gone.
func (f *fifo) seen(m *message, perGroup bool, now time.Time) (sending, bool) {
	for e := f.sends.Front(); e != nil && now.Sub(f.sent[e.Value.(string)].at) >= dedupInterval; e = f.sends.Front() {
		delete(f.sent, f.sends.Remove(e).(string))
	}
	first, found := f.sent[dedupKey(m, perGroup)]
	return first, found
}

func (f *fifo) remember(m *message, perGroup bool, now time.Time) {
	key := dedupKey(m, perGroup)
	f.sent[key] = sending{m.id, m.sequence, now}
	f.sends.PushBack(key)
}

func dedupKey(m *message, perGroup bool) string {
	if perGroup {
		return m.group + " " + m.dedup // neither contains a space
	}
	return m.dedup
}

// repeat answers a ReceiveRequestAttemptId of the last five minutes with the messages and handles
// of its first use. If one of them was deleted, changed or received again, it returns nil. The
// visibility timeout starts anew (ReceiveMessage).
func (q *queue) repeat(id string, visibility time.Duration, now time.Time) []*message {
	first, found := q.fifo.attempts[id]
	if !found || now.Sub(first.at) >= dedupInterval {
		return nil
	}
	for i, m := range first.messages {
		if m.state != inFlight || m.changed || m.handle != first.handles[i] {
			return nil
		}
	}
	for _, m := range first.messages {
		q.wait(m, now.Add(visibility))
	}
	return first.messages
}

func (f *fifo) attempted(id string, taken []*message, now time.Time) {
	for old, a := range f.attempts {
		if now.Sub(a.at) >= dedupInterval {
			delete(f.attempts, old)
		}
	}
	a := attempt{at: now, messages: taken}
	for _, m := range taken {
		a.handles = append(a.handles, m.handle)
	}
	f.attempts[id] = a
}

// withinQuota counts calls of an action in each second.
func (q *queue) withinQuota(op string) bool {
	quota := q.server.fifoQuota
	if q.fifo == nil || quota <= 0 || !messageOps[op] {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.set.perGroupQuota {
		return true
	}
	if now := time.Now(); now.Sub(q.fifo.second) >= time.Second {
		q.fifo.second, q.fifo.calls = now, map[string]int{}
	}
	q.fifo.calls[op]++
	return q.fifo.calls[op] <= quota
}

// sequenceNumber has the form of AWS's: twenty digits that grow.
func sequenceNumber(n uint64) string { return fmt.Sprintf("188%017d", n) }
