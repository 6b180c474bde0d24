package pawlkafka

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
)

// If Config.Key panics, the record is delivered with its payload and the fault, and without a key.
func TestDelivery_KeyPanics(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]func(){"Config.Key: panic: boom, at ": func() { panic("boom") }, "Config.Key: the function exited": runtime.Goexit} {
		s := &Source{config: Config{Key: KeyFunc(func(Record) string { end(); return "key" })}}
		d := s.delivery(handout{at: &entry{of: &partition{topicPartition: topicPartition{topic: "orders"}}}, record: &kgo.Record{Value: []byte("body")}})
		if d.Fault == nil || !strings.HasPrefix(d.Fault.Error(), want) || d.Key != "" || string(d.Payload) != "body" || d.Handle == nil {
			t.Errorf("%s: %+v", want, d)
		}
	}
	if _, err := (Config{Key: KeyFirst(DefaultKey(), KeyFunc(nil))}).filled(); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("a KeyFunc without a function: %v", err)
	}
}

// If TopicOf panics, nothing is sent. The failure counts as an attempt and is not final.
func TestSink_TopicOfPanics(t *testing.T) {
	t.Parallel()
	s := &Sink{config: SinkConfig{TopicOf: func(pawl.Message) string { panic("boom") }}}
	if err := s.Carries(pawl.Message{}); err == nil || pawl.IsFinal(err) {
		t.Error(err)
	}
	if errs := s.Publish(context.Background(), []pawl.Message{{}}); len(errs) != 1 || errs[0] == nil || pawl.IsFinal(errs[0]) {
		t.Error(errs)
	}
}
