// Package jetstream has the names that the test data uses.
package jetstream

import "context"

type Msg interface {
	Data() []byte
	Ack() error
	DoubleAck(ctx context.Context) error
	Nak() error
}
