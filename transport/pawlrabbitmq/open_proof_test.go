//go:build proof

package pawlrabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
)

// openWith opens a source on a queue and returns its warnings.
func openWith(t *testing.T, dial pawlrabbitmq.Dialer, queue string, cfg pawlrabbitmq.Config) (warnings []string, err error) {
	t.Helper()
	var mu sync.Mutex
	cfg.Hooks = pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == pawl.EventError {
			warnings = append(warnings, e.Err.Error())
		}
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := pawlrabbitmq.Open(ctx, dial, queue, cfg)
	if err == nil {
		_ = s.Finish(ctx)
	}
	return warnings, err
}

// Open refuses queues that break a guarantee, says what to change, and declares nothing.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	recovering := pawlrabbitmq.URLConfig(urlOf(server.Addr()), amqp.Config{Recovery: &amqp.Recovery{TopologyRecoveryMode: amqp.TopologyRecoveryDisabled}})
	for _, c := range []struct {
		name string
		args amqp.Table // of the queue
		dial pawlrabbitmq.Dialer
		cfg  pawlrabbitmq.Config
		want string
	}{
		{"classic", nil, nil, pawlrabbitmq.Config{}, "is a classic queue"},
		{"classic with arguments", amqp.Table{"x-message-ttl": 60000, "x-dead-letter-exchange": "dlx", "x-max-priority": 5}, nil, pawlrabbitmq.Config{}, "is a classic queue"},
		{"stream", amqp.Table{"x-queue-type": "stream"}, nil, pawlrabbitmq.Config{AllowClassic: true}, "is a stream"},
		{"no single consumer", quorum("x-delivery-limit", 5, "x-dead-letter-exchange", "dlx"), nil, pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByQueue}, "x-single-active-consumer"},
		{"recovery", quorum(), recovering, pawlrabbitmq.Config{}, "recovers by itself"},
		{"prefetch", quorum(), nil, pawlrabbitmq.Config{Prefetch: 20_000}, "Prefetch is 20000"},
		{"wait", quorum(), nil, pawlrabbitmq.Config{Wait: time.Hour}, "Wait is 1h"},
		{"horizon", quorum(), nil, pawlrabbitmq.Config{RedeliveryHorizon: time.Second}, "RedeliveryHorizon is 1s"},
		{"key", quorum(), nil, pawlrabbitmq.Config{Key: pawlrabbitmq.KeyHeader("")}, "KeyHeader needs a name"},
		{"management", quorum(), nil, pawlrabbitmq.Config{Management: strings.Replace(server.management, "guest:guest", "guest:wrong", 1)}, "it answers 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := queueOn(t, server, c.args)
			if c.dial == nil {
				c.dial = dialer(server.Addr())
			}
			_, err := openWith(t, c.dial, f.queue, c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), ")") && pawl.CodeOf(err) == "" {
				t.Errorf("got %v, want %q and a hint", err, c.want)
			}
		})
	}
}

// Open refuses a missing queue and does not create it.
func TestOpen_MakesNoQueue(t *testing.T) {
	t.Parallel()
	f := queueOn(t, sharedServer(t), quorum())
	_, err := openWith(t, dialer(f.server.Addr()), "nowhere", pawlrabbitmq.Config{})
	if err == nil || !strings.Contains(err.Error(), `the queue "nowhere" does not exist (declare it`) {
		t.Errorf("got %v", err)
	}
	if _, err := f.ch.QueueDeclarePassive("nowhere", true, false, false, false, nil); err == nil {
		t.Error("the queue was made")
	}
}

// Open warns from the arguments alone how RabbitMQ may drop messages.
func TestOpen_WarnsOfDrops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args amqp.Table
		want []string
	}{
		{quorum(), nil},
		{quorum("x-delivery-limit", 5), []string{"drops a message after 5 redeliveries"}},
		{quorum("x-delivery-limit", 5, "x-dead-letter-exchange", "dlx"), nil},
		{quorum("x-message-ttl", 1000), []string{"not consumed within 1000 ms"}},
		{quorum("x-max-length", 10, "x-single-active-consumer", true), []string{"drops its oldest messages"}},
		{quorum("x-max-length", 10, "x-overflow", "reject-publish"), nil},
		{quorum("x-expires", 3_600_000, "x-delivery-limit", 7), []string{"after 7 redeliveries", "deleted with its messages"}},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			t.Parallel()
			f := queueOn(t, sharedServer(t), c.args)
			warnings, err := openWith(t, dialer(f.server.Addr()), f.queue, pawlrabbitmq.Config{})
			f.must(err)
			wantWarnings(t, warnings, c.want)
			again, err := openWith(t, dialer(f.server.Addr()), f.queue, pawlrabbitmq.Config{Management: f.server.management})
			f.must(err)
			wantWarnings(t, again, c.want)
		})
	}
}

func wantWarnings(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("warns of %q, want %q", got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("warns of %q, want %q", got[i], want[i])
		}
	}
}

// Only the management API shows policies.
func TestOpen_ManagementSeesPolicies(t *testing.T) {
	t.Parallel()
	f := queueOn(t, sharedServer(t), quorum())
	manage(t, "/api/policies/%2F/limit-"+f.queue, `{"pattern":"^`+f.queue+`$","definition":{"delivery-limit":3},"apply-to":"queues"}`)
	dial := dialer(f.server.Addr())
	warnings, err := openWith(t, dial, f.queue, pawlrabbitmq.Config{})
	f.must(err)
	wantWarnings(t, warnings, nil)
	eventually(t, "the policy is seen", func() bool {
		warnings, err = openWith(t, dial, f.queue, pawlrabbitmq.Config{Management: f.server.management})
		f.must(err)
		return len(warnings) > 0
	})
	wantWarnings(t, warnings, []string{"drops a message after 3 redeliveries"})
}

// A user without configure permission gets a warning, and with OrderingKey an error.
func TestOpen_WithoutConfigurePermission(t *testing.T) {
	t.Parallel()
	f := queueOn(t, sharedServer(t), single())
	manage(t, "/api/users/reader", `{"password":"secret","tags":""}`)
	manage(t, "/api/permissions/%2F/reader", `{"configure":"^$","write":"^$","read":".*"}`)
	dial := pawlrabbitmq.URL("amqp://reader:secret@" + f.server.Addr() + "/")
	warnings, err := openWith(t, dial, f.queue, pawlrabbitmq.Config{})
	f.must(err)
	wantWarnings(t, warnings, []string{"cannot be inspected"})
	if _, err := openWith(t, dial, f.queue, pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByQueue}); err == nil || !strings.Contains(err.Error(), "needs a single active consumer") {
		t.Errorf("got %v", err)
	}
	if _, err := openWith(t, dial, f.queue, pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByQueue, Management: f.server.management}); err != nil {
		t.Error(err)
	}
	_, err = openWith(t, pawlrabbitmq.URL("amqp://reader:wrong@"+f.server.Addr()+"/"), f.queue, pawlrabbitmq.Config{})
	if err == nil || !strings.Contains(err.Error(), "refuses the user or the password") {
		t.Errorf("got %v", err)
	}
}
