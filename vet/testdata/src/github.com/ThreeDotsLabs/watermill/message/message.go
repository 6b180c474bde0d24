// Package message has the names that the test data uses.
package message

type Message struct {
	UUID    string
	Payload []byte
}

func (*Message) Ack() bool  { return true }
func (*Message) Nack() bool { return true }

type Publisher interface {
	Publish(topic string, messages ...*Message) error
	Close() error
}
