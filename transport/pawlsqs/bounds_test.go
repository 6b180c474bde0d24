package pawlsqs_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/bounds"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// sourceBounds are the bounds documented at Config. A Wait of 0 is the default; a negative one is
// ShortPoll.
var sourceBounds = []bounds.Setting{
	{Name: "Visibility", Least: time.Second, Most: 12 * time.Hour},
	{Name: "Wait", Least: pawlsqs.ShortPoll, Most: 20 * time.Second},
	{Name: "StopWait", Least: time.Duration(0), Most: 30 * time.Second},
}

// Open refuses a value just outside its bounds and names the setting. Every number has bounds.
func TestBounds(t *testing.T) {
	t.Parallel()
	bounds.Complete[pawlsqs.Config](t, sourceBounds...)
	client := newClient(sqstest.New(sqstest.Options{}), "http://sqs.test")
	createQueue(t, client, "q")
	open := func(cfg pawlsqs.Config) error {
		_, err := pawlsqs.Open(t.Context(), client, "q", cfg)
		return err
	}
	bounds.Refused(t, open, sourceBounds...)
	for name, cfg := range bounds.Each(pawlsqs.Config{}, sourceBounds...) {
		if err := open(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
