package broker

import (
	"fmt"
	"testing"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Entries that the queue refuses are sent again until it accepts them. An order that was not sent
// would look lost.
func TestSQS_SendsAgain(t *testing.T) {
	t.Parallel()
	s, err := OpenSQS(t.Context(), sqstest.Chaos(3, sqstest.Rates{EntryError: 0.2}), "orders")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	messages := make([]Message, 900)
	for i := range messages {
		messages[i] = Message{Key: fmt.Sprint(i), Payload: []byte("{}")}
	}
	if err := s.Send(t.Context(), "orders", messages...); err != nil {
		t.Fatal(err)
	}
	if count, err := s.Count(t.Context()); err != nil || count.Sent < int64(len(messages)) {
		t.Errorf("%+v, want %d sent: %v", count, len(messages), err)
	}
}
