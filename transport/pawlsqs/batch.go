package pawlsqs

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// entry is one message of a batch call.
type entry struct {
	receipt string
	seconds int32 // visibility to set; unused by deletes and sends
	message int   // index of the message to send; used by sends only
}

// entryResult is the result of one entry.
type entryResult struct {
	err   error // nil if it succeeded
	dead  bool  // the handle is no longer usable
	again bool  // a fault of the service: the same entry may succeed now
}

// batchResponse is the response to a batch call, by entry ids.
type batchResponse struct {
	successful []string
	failed     []types.BatchResultErrorEntry
}

// batchCall sends up to ten entries. ids[i] belongs to entries[i].
type batchCall func(ctx context.Context, ids []string, entries []entry) (batchResponse, error)

var errUnanswered = errors.New("the response does not mention the entry")

// inBatches sends entries ten at a time and returns one result for each. Entry ids are positions,
// because message ids may repeat in a batch: a redelivery may be stored beside its original. SQS
// refuses a batch with repeated ids (trap T75).
func inBatches(ctx context.Context, entries []entry, call batchCall) []entryResult {
	results := make([]entryResult, 0, len(entries))
	for chunk := range slices.Chunk(entries, maxBatch) {
		results = append(results, oneBatch(ctx, chunk, call)...)
	}
	return results
}

func oneBatch(ctx context.Context, chunk []entry, call batchCall) []entryResult {
	ids := positions(len(chunk))
	results := make([]entryResult, len(chunk))
	reply, err := call(ctx, ids, chunk)
	for i := range results {
		if err != nil {
			results[i].err = err // the SDK has retried already
		} else if !slices.Contains(reply.successful, ids[i]) {
			results[i] = entryResult{err: errUnanswered, again: true}
		}
	}
	for _, f := range reply.failed {
		i := slices.Index(ids, aws.ToString(f.Id))
		if i < 0 {
			continue
		}
		results[i] = judge(f)
	}
	return results
}

// twice is inBatches with one retry of the entries that failed by a fault of the service.
func twice(ctx context.Context, entries []entry, call batchCall) []entryResult {
	results := inBatches(ctx, entries, call)
	var again []entry
	var where []int
	for i, o := range results {
		if o.again {
			again, where = append(again, entries[i]), append(where, i)
		}
	}
	for i, o := range inBatches(ctx, again, call) {
		results[where[i]] = o
	}
	return results
}

func positions(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	return ids
}

func (s *Source) deleteMessages(ctx context.Context, ids []string, entries []entry) (batchResponse, error) {
	in := &awssqs.DeleteMessageBatchInput{QueueUrl: &s.url}
	for i := range entries {
		in.Entries = append(in.Entries,
			types.DeleteMessageBatchRequestEntry{Id: &ids[i], ReceiptHandle: &entries[i].receipt})
	}
	out, err := s.client.DeleteMessageBatch(ctx, in)
	if err != nil {
		return batchResponse{}, err
	}
	reply := batchResponse{failed: out.Failed}
	for _, done := range out.Successful {
		reply.successful = append(reply.successful, aws.ToString(done.Id))
	}
	return reply, nil
}

func (s *Source) changeVisibility(ctx context.Context, ids []string, entries []entry) (batchResponse, error) {
	in := &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &s.url}
	for i := range entries {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: &ids[i], ReceiptHandle: &entries[i].receipt, VisibilityTimeout: entries[i].seconds})
	}
	out, err := s.client.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return batchResponse{}, err
	}
	reply := batchResponse{failed: out.Failed}
	for _, done := range out.Successful {
		reply.successful = append(reply.successful, aws.ToString(done.Id))
	}
	return reply, nil
}
