package pawlnats_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// If a function of Config panics, the message becomes a dead letter; other messages take effect.
func TestConfig_PanicIsADeadLetter(t *testing.T) {
	t.Parallel()
	bad := func(m *nats.Msg) bool { return strings.HasSuffix(m.Subject, ".bad") }
	unless := func(end func()) pawlnats.KeyFrom {
		return pawlnats.KeyFunc(func(m *nats.Msg) string {
			if bad(m) {
				end()
			}
			return pawlnats.DefaultKey().KeyOf(m)
		})
	}
	for name, c := range map[string]struct {
		config pawlnats.Config
		why    string
	}{
		"Key panics": {pawlnats.Config{Key: unless(func() { panic("boom") })}, "Config.Key: panic: boom, at "},
		"Key exits":  {pawlnats.Config{Key: unless(runtime.Goexit)}, "Config.Key: the function exited its goroutine"},
		"OrderingKey panics": {pawlnats.Config{OrderingKey: func(subject string) string {
			if strings.HasSuffix(subject, ".bad") {
				panic("boom")
			}
			return subject
		}}, "Config.OrderingKey: panic: boom, at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, options{config: c.config, consumer: jetstream.ConsumerConfig{MaxAckPending: 1}})
			p.run(p.source, write)
			p.send("1")
			m := nats.NewMsg(p.stream + ".bad")
			m.Header.Set(pawlnats.DefaultKeyHeader, "2")
			p.publish(m)
			p.send("3")
			eventually(t, "all is settled", func() bool { return p.letters() == 1 && len(p.wrote()) == 2 && p.settled() })
			var n int
			p.must(p.pool.QueryRow(t.Context(), "select count(*) from pawl_v1.dead_letters as d where d.last_error like '%' || $1 || '%'", c.why).Scan(&n))
			if n != 1 {
				t.Errorf("%d dead letters say %q", n, c.why)
			}
		})
	}
}

// Open refuses a nil KeyFunc.
func TestKeyFunc_Nil(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	if _, err := pawlnats.Open(t.Context(), f.js, f.stream, f.consumer, pawlnats.Config{Key: pawlnats.KeyFunc(nil)}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Error(err)
	}
}
