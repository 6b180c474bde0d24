//go:build proof

package pawlsqs_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/bounds"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
	"github.com/pawl-go/pawl/transport/transporttest"
)

const longestWait = 20 * time.Second

// The acceptance suite passes at the least and the largest documented value of each setting. The
// largest Wait has its own test, because the suite receives from empty sources one after the other.
func TestAcceptance_Bounds(t *testing.T) {
	t.Parallel()
	for name, cfg := range bounds.Each(suiteConfig, sourceBounds...) {
		if cfg.Wait == longestWait {
			cfg.Wait = suiteConfig.Wait
		}
		for kind, b := range map[string]transporttest.Broker{"standard": broker("q", standard, cfg), "FIFO": broker("q.fifo", fifo, cfg)} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				b.Alone = nil // restarts of the server do not depend on bounds
				transporttest.Run(t, b)
			})
		}
	}
}

// At the largest Wait, Receive still returns when a message arrives or its context ends.
func TestReceive_LargestWait(t *testing.T) {
	t.Parallel()
	server, err := sqstest.New(sqstest.Options{}).Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	cfg := suiteConfig
	cfg.Wait = longestWait
	q := queueAt(t, server.URL, "q", cfg)
	bounds.LongWait(t, q.Source(t), func() {
		if err := q.Send(context.Background(), transporttest.Message{Key: "a", Payload: []byte("a")}); err != nil {
			t.Error(err)
		}
	})
}
