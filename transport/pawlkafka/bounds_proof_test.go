//go:build proof

package pawlkafka_test

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/bounds"
	"github.com/pawl-go/pawl/transport/pawlkafka"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// sourceBounds are the documented bounds. The least MaxTotalOctets is MaxOctets. A sink has none.
var sourceBounds = []bounds.Setting{
	{Name: "Wait", Least: 50 * time.Millisecond, Most: longestWait},
	{Name: "MaxRecords", Least: 1, Most: 100_000},
	{Name: "MaxOctets", Least: 1, Most: 1 << 30},
	{Name: "MaxTotalOctets", Least: 1, Most: 64 << 30},
}

const longestWait = 30 * time.Second

func TestBounds_AreAllHere(t *testing.T) {
	t.Parallel()
	bounds.Complete[pawlkafka.Config](t, sourceBounds...)
	bounds.Complete[pawlkafka.SinkConfig](t)
}

// Open refuses a value just outside its bounds, and the error names the setting.
func TestBounds_Refused(t *testing.T) {
	t.Parallel()
	bounds.Refused(t, func(cfg pawlkafka.Config) error {
		s, err := pawlkafka.Open(t.Context(), quick(addr(t)), unique(t), []string{"any"}, cfg)
		if err == nil {
			_ = s.Finish(t.Context())
		}
		return err
	}, sourceBounds...)
}

// The acceptance suite passes at the least and the largest documented value of each setting. The
// largest Wait has its own test, because the suite receives from empty sources one after the other.
func TestAcceptance_Bounds(t *testing.T) {
	t.Parallel()
	for name, cfg := range bounds.Each(pawlkafka.Config{}, sourceBounds...) {
		keyed := features
		keyed.Ordered, keyed.BinaryKeys = true, true
		if cfg.MaxTotalOctets == 1 {
			cfg.MaxOctets = 1
		}
		keyed.Narrow = cfg.MaxRecords == 1 || cfg.MaxOctets == 1
		if cfg.Wait == longestWait {
			cfg.Wait = 0
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := kafkaBroker(t, keyed, cfg)
			b.Alone = nil // restarts do not depend on bounds, and each needs its own broker
			transporttest.Run(t, b)
		})
	}
}

// At the largest Wait, Receive still returns when a record arrives or its context ends.
func TestReceive_LargestWait(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic := createTopic(t, at, 1, nil)
	s := open(t, quick(at), unique(t), []string{topic}, pawlkafka.Config{Wait: longestWait})
	produce(t, at, keyed(topic, 0, "first"))
	ack(t, s, get(t, s, 1)...)
	bounds.LongWait(t, s, func() { produce(t, at, keyed(topic, 0, "second")) })
}
