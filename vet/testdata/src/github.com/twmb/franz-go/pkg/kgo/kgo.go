// Package kgo has the names that the test data uses.
package kgo

import "context"

type Record struct{ Key, Value []byte }

type Fetches struct{}

func (Fetches) Records() []*Record { return nil }

type Client struct{}

func (*Client) PollFetches(ctx context.Context) Fetches                { return Fetches{} }
func (*Client) CommitRecords(ctx context.Context, rs ...*Record) error { return nil }
func (*Client) CommitUncommittedOffsets(ctx context.Context) error     { return nil }
