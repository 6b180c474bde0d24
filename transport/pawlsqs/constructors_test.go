package pawlsqs_test

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

// Open, OpenSender and OpenSink refuse a nil client instead of panicking at the first call.
func TestConstructors_RefuseNil(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"orders", "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"} {
		_, source := pawlsqs.Open(t.Context(), nil, queue, pawlsqs.Config{})
		_, sender := pawlsqs.OpenSender(t.Context(), nil, queue, "")
		_, sink := pawlsqs.OpenSink(t.Context(), nil, queue, pawlsqs.SinkConfig{})
		for name, err := range map[string]error{"Open": source, "OpenSender": sender, "OpenSink": sink} {
			if !errors.Is(err, pawl.ErrArgumentInvalid) {
				t.Errorf("%s of %s: %v", name, queue, err)
			}
		}
	}
}
