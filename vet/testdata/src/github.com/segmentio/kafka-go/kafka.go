// Package kafka has the names that the test data uses.
package kafka

import "context"

type Message struct{ Key, Value []byte }

type Reader struct{}

func (*Reader) FetchMessage(ctx context.Context) (Message, error)         { return Message{}, nil }
func (*Reader) CommitMessages(ctx context.Context, msgs ...Message) error { return nil }

type Writer struct{}

func (*Writer) WriteMessages(ctx context.Context, msgs ...Message) error { return nil }
