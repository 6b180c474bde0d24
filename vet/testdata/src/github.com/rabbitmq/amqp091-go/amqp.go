// Package amqp091 has the names that the test data uses.
package amqp091

import "context"

type Delivery struct {
	Body      []byte
	MessageId string
}

func (Delivery) Ack(multiple bool) error           { return nil }
func (Delivery) Nack(multiple, requeue bool) error { return nil }

type Publishing struct{ Body []byte }

type Channel struct{}

func (*Channel) PublishWithContext(ctx context.Context, exchange, key string, mandatory, immediate bool, msg Publishing) error {
	return nil
}
