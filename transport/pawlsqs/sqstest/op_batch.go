package sqstest

import "regexp"

type batchResult[T any] struct {
	Successful []T
	Failed     []failedEntry
}

type failedEntry struct {
	Id, Code, Message string
	SenderFault       bool
}

type doneEntry struct{ Id string }

type sendBatchRequest struct{ Entries []sendRequest }

type handleBatchRequest struct{ Entries []handleRequest }

func (q *queue) sendBatch(r *request, in *sendBatchRequest) (any, *Error) {
	total := 0
	for i := range in.Entries {
		total += size(in.Entries[i].MessageBody, in.Entries[i].MessageAttributes)
	}
	if total > maxMessageSize && len(in.Entries) <= maxBatch {
		return nil, failure("BatchRequestTooLong", legacy+"BatchRequestTooLong",
			"Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxMessageSize, total)
	}
	return batch(q, r, in.Entries, sendRequest.entryID, q.send)
}

func (q *queue) deleteBatch(r *request, in *handleBatchRequest) (any, *Error) {
	return batch(q, r, in.Entries, handleRequest.entryID, func(one *handleRequest) (doneEntry, *Error) {
		return doneEntry{one.Id}, q.deleteOne(one)
	})
}

func (q *queue) changeVisibilityBatch(r *request, in *handleBatchRequest) (any, *Error) {
	return batch(q, r, in.Entries, handleRequest.entryID, func(one *handleRequest) (doneEntry, *Error) {
		return doneEntry{one.Id}, q.changeOne(one)
	})
}

func (in sendRequest) entryID() string   { return in.Id }
func (in handleRequest) entryID() string { return in.Id }

// batch processes each entry on its own: some may fail while others succeed.
func batch[In, Out any](q *queue, r *request, entries []In, id func(In) string, do func(*In) (Out, *Error)) (any, *Error) {
	ids := make([]string, len(entries))
	for i := range entries {
		ids[i] = id(entries[i])
	}
	if failed := checkBatch(ids); failed != nil {
		return nil, failed
	}
	faults := q.server.faults.Load()
	result := batchResult[Out]{Successful: []Out{}, Failed: []failedEntry{}}
	for i := range entries {
		failed := faults.failEntry(r.call, i)
		var done Out
		if failed == nil {
			done, failed = do(&entries[i])
		}
		if failed == nil {
			result.Successful = append(result.Successful, done)
			continue
		}
		result.Failed = append(result.Failed, failedEntry{Id: ids[i], Code: failed.code(), Message: failed.Message,
			SenderFault: failed.senderFault()})
	}
	return result, nil
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// checkBatch refuses whole batches: empty, too large, or with malformed or repeated ids.
func checkBatch(ids []string) *Error {
	if len(ids) == 0 {
		return failure("EmptyBatchRequest", legacy+"EmptyBatchRequest",
			"There should be at least one entry in the request.")
	}
	if len(ids) > maxBatch {
		return failure("TooManyEntriesInBatchRequest", legacy+"TooManyEntriesInBatchRequest",
			"Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(ids))
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if !entryID.MatchString(id) || len(id) > maxEntryID {
			return failure("InvalidBatchEntryId", legacy+"InvalidBatchEntryId", "A batch entry id can only contain "+
				"alphanumeric characters, hyphens and underscores. It can be at most %d letters long.", maxEntryID)
		}
		if seen[id] {
			return failure("BatchEntryIdsNotDistinct", legacy+"BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}
