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

type entryResult struct {
	err   error // nil if it succeeded
	dead  bool  // the handle is no longer usable
	again bool  // a fault of the service: the same entry may succeed now
	whole int   // the number of entries of a call that failed as a whole; else 0
}

// batchResponse is the response to a batch call, by entry ids.
type batchResponse struct {
	successful []string
	failed     []types.BatchResultErrorEntry
}

// batchCall sends up to ten entries. ids[i] belongs to entries[i].
type batchCall[E any] func(ctx context.Context, ids []string, entries []E) (batchResponse, error)

var errUnanswered = errors.New("the response does not mention the entry")

// inBatches sends entries ten at a time and returns one result for each. Entry ids are positions,
// because message ids may repeat in a batch: a redelivery may be stored beside its original. SQS
// refuses a batch with repeated ids (trap T75).
func inBatches[E any](ctx context.Context, entries []E, call batchCall[E]) []entryResult {
	results := make([]entryResult, 0, len(entries))
	for chunk := range slices.Chunk(entries, maxBatch) {
		results = append(results, oneBatch(ctx, chunk, call)...)
	}
	return results
}

func oneBatch[E any](ctx context.Context, chunk []E, call batchCall[E]) []entryResult {
	ids, results := make([]string, len(chunk)), make([]entryResult, len(chunk))
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	reply, err := call(ctx, ids, chunk)
	for i := range results {
		if err != nil {
			results[i] = entryResult{err: err, whole: len(chunk)} // the SDK has retried already
		} else if !slices.Contains(reply.successful, ids[i]) {
			results[i] = entryResult{err: errUnanswered, again: true}
		}
	}
	for _, f := range reply.failed {
		if i := slices.Index(ids, aws.ToString(f.Id)); i >= 0 {
			results[i] = judge(f)
		}
	}
	return results
}

// twice is inBatches with one retry of the entries that failed by a fault of the service.
func twice[E any](ctx context.Context, entries []E, call batchCall[E]) []entryResult {
	results := inBatches(ctx, entries, call)
	var again []E
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

func (s *Source) deleteMessages(ctx context.Context, ids []string, held []*arrival) (batchResponse, error) {
	in := &awssqs.DeleteMessageBatchInput{QueueUrl: &s.url}
	for i, a := range held {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: &ids[i], ReceiptHandle: &a.receipt})
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

// change sets the visibility of one message.
type change struct {
	receipt string
	seconds int32
}

func (s *Source) changeVisibility(ctx context.Context, ids []string, changes []change) (batchResponse, error) {
	in := &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &s.url}
	for i, c := range changes {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: &ids[i], ReceiptHandle: &c.receipt, VisibilityTimeout: c.seconds})
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
