package pawlnats_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
	"github.com/pawl-go/pawl/transport/transporttest"
)

func TestSource_Acceptance(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	transporttest.Run(t, transporttest.Broker{
		Features: transporttest.Features{Counted: true, ReleaseDelay: true, CrashRedelive: true, SentAt: true},
		Open: func(t *testing.T) transporttest.Queue {
			o := options{server: server}
			o.withDefaults()
			f := setup(t, o)
			crashed := map[pawl.Source]*nats.Conn{}
			return transporttest.Queue{
				Send: func(ctx context.Context, m transporttest.Message) error {
					n := nats.NewMsg(f.stream + ".placed")
					n.Data = m.Payload
					for name, value := range m.Attributes {
						n.Header.Set(name, value)
					}
					n.Header.Set("Idempotency-Key", m.Key)
					_, err := f.js.PublishMsg(ctx, n)
					return err
				},
				Source: func(t *testing.T) pawl.Source {
					js := connect(t, server.Addr())
					s, err := pawlnats.Open(t.Context(), js, f.stream, f.consumer, pawlnats.Config{Wait: time.Second})
					if err != nil {
						t.Fatal(err)
					}
					crashed[s] = js.Conn()
					return s
				},
				Abandon: func(s pawl.Source) { crashed[s].Close() },
			}
		},
	})
}
