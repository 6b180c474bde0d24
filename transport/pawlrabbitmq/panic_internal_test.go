package pawlrabbitmq

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
)

// If a function of the configuration panics or exits, the message has a fault and no order.
func TestDelivery_Panics(t *testing.T) {
	t.Parallel()
	boom := func(*amqp.Delivery) string { panic("boom") }
	for want, c := range map[string]Config{
		"Config.Key: panic: boom, at ":         {Key: KeyFunc(boom), OrderingKey: ByQueue},
		"Config.Key: the function exited":      {Key: KeyFunc(func(*amqp.Delivery) string { runtime.Goexit(); return "" })},
		"Config.OrderingKey: panic: boom, at ": {Key: KeyBody(), OrderingKey: boom},
	} {
		d := (&Source{config: c}).delivery(&amqp.Delivery{Body: []byte("body")})
		if d.Fault == nil || !strings.HasPrefix(d.Fault.Error(), want) || d.OrderingKey != "" || string(d.Payload) != "body" {
			t.Errorf("%s: %+v", want, d)
		}
	}
	if _, err := (Config{Key: KeyFunc(nil)}).filled(); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("a KeyFunc without a function: %v", err)
	}
}

// A Dialer that panics or exits returns an error.
func TestDialer_Panics(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]func(){"panic: boom, at ": func() { panic("boom") }, "exited its goroutine": runtime.Goexit} {
		_, err := Open(t.Context(), func() (*amqp.Connection, error) { end(); return nil, nil }, "q", Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// If RoutingKeyOf panics, the event is charged, and the error is not final.
func TestSink_RoutingKeyPanics(t *testing.T) {
	t.Parallel()
	s := &Sink{config: SinkConfig{RoutingKeyOf: func(pawl.Message) string { panic("boom") }}}
	if err := s.Carries(pawl.Message{}); err == nil || pawl.IsFinal(misfit(err)) {
		t.Error(err)
	}
}
