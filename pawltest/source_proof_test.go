//go:build proof

package pawltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// The Source passes the acceptance suite for sources.
func TestSource(t *testing.T) {
	t.Parallel()
	for name, features := range map[string]transporttest.Features{
		"unordered": {Counted: true, CrashRedelive: true, Revoked: true, Octets: true, EmptyBodies: true},
		"ordered":   {Counted: true, CrashRedelive: true, Revoked: true, Octets: true, EmptyBodies: true, Ordered: true},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Broker{Features: features, Quiet: 150 * time.Millisecond, Open: func(*testing.T) transporttest.Queue {
				s := &pawltest.Source{Invisibility: 300 * time.Millisecond}
				return transporttest.Queue{
					Send: func(_ context.Context, m transporttest.Message) error {
						s.Send(pawl.Delivery{Key: m.Key, OrderingKey: m.OrderingKey, Payload: m.Payload, Attributes: m.Attributes})
						return nil
					},
					Source:  func(*testing.T) pawl.Source { return s },
					Abandon: func(pawl.Source) {}, // its invisibility ends
					Revoke:  func(pawl.Source) {},
				}
			}})
		})
	}
}
