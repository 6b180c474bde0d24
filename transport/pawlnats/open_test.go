package pawlnats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlnats"
)

// Open refuses a consumer that loses messages, blocks them or keeps no order. The error has a hint.
func TestOpen_RefusesUnfitConsumers(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	k := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1}
	for name, c := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		config pawlnats.Config
		says   string
	}{
		"acks-none":    {func(k *jetstream.ConsumerConfig) { k.AckPolicy = jetstream.AckNonePolicy }, pawlnats.Config{}, "make it with ack explicit"},
		"acks-all":     {func(k *jetstream.ConsumerConfig) { k.AckPolicy = jetstream.AckAllPolicy }, pawlnats.Config{}, "make it with ack explicit"},
		"max-deliver":  {func(k *jetstream.ConsumerConfig) { k.MaxDeliver = 5 }, pawlnats.Config{}, "set max-deliver to -1"},
		"backoff":      {func(k *jetstream.ConsumerConfig) { k.BackOff = []time.Duration{time.Second, time.Minute} }, pawlnats.Config{}, "remove the back-off"},
		"ack-wait":     {func(k *jetstream.ConsumerConfig) { k.AckWait = 500 * time.Millisecond }, pawlnats.Config{}, "set it to 30s"},
		"headers-only": {func(k *jetstream.ConsumerConfig) { k.HeadersOnly = true }, pawlnats.Config{}, "switch headers-only off"},
		"replay":       {func(k *jetstream.ConsumerConfig) { k.ReplayPolicy = jetstream.ReplayOriginalPolicy }, pawlnats.Config{}, "replay policy to instant"},
		"new":          {func(k *jetstream.ConsumerConfig) { k.DeliverPolicy = jetstream.DeliverNewPolicy }, pawlnats.Config{}, "deliver all"},
		"inactive":     {func(k *jetstream.ConsumerConfig) { k.InactiveThreshold = time.Hour }, pawlnats.Config{}, "remove the inactive threshold"},
		"ephemeral":    {func(k *jetstream.ConsumerConfig) { k.Durable = "" }, pawlnats.Config{}, "make it durable"},
		"order":        {func(*jetstream.ConsumerConfig) {}, pawlnats.Config{OrderingKey: pawlnats.BySubject}, "set max-pending to 1"},
		"groups": {func(k *jetstream.ConsumerConfig) {
			k.PriorityPolicy, k.PriorityGroups, k.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"a"}, time.Minute
		}, pawlnats.Config{}, "without priority groups"},
	} {
		k := k
		k.Name, k.Durable = name, name
		c.change(&k)
		_, err := f.js.CreateConsumer(t.Context(), f.stream, k)
		f.must(err)
		if _, err = pawlnats.Open(t.Context(), f.js, f.stream, name, c.config); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := pawlnats.Open(t.Context(), f.js, f.stream, "new", pawlnats.Config{StartsLater: true})
	f.must(err)
}

// If something is missing, Open returns a one-line error with a hint, and creates nothing.
func TestOpen_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := setup(t, options{})
	open := func(js jetstream.JetStream, stream, consumer string, cfg pawlnats.Config) error {
		_, err := pawlnats.Open(t.Context(), js, stream, consumer, cfg)
		return err
	}
	_, err := f.js.CreatePushConsumer(t.Context(), f.stream, jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "to.me", AckPolicy: jetstream.AckExplicitPolicy})
	f.must(err)
	closed := connect(t, f.server.Addr())
	closed.Conn().Close()
	domain, err := jetstream.NewWithDomain(f.js.Conn(), "elsewhere")
	f.must(err)
	for says, err := range map[string]error{
		"JetStream context is missing": open(nil, f.stream, f.consumer, pawlnats.Config{}),
		"both need a name":             open(f.js, f.stream, "", pawlnats.Config{}),
		"Wait is 1m0s":                 open(f.js, f.stream, f.consumer, pawlnats.Config{Wait: time.Minute}),
		"Batch is 1001":                open(f.js, f.stream, f.consumer, pawlnats.Config{Batch: 1001}),
		"KeyHeader needs a name":       open(f.js, f.stream, f.consumer, pawlnats.Config{Key: pawlnats.KeyHeader("")}),
		"KeyJSON":                      open(f.js, f.stream, f.consumer, pawlnats.Config{Key: pawlnats.KeyFirst(pawlnats.KeyJSON("no pointer"))}),
		"at least one":                 open(f.js, f.stream, f.consumer, pawlnats.Config{Key: pawlnats.KeyFirst()}),
		"given nil":                    open(f.js, f.stream, f.consumer, pawlnats.Config{Key: pawlnats.KeyFirst(nil)}),
		"stream of none/billing does":  open(f.js, "none", f.consumer, pawlnats.Config{}),
		"/none does not exist (create": open(f.js, f.stream, "none", pawlnats.Config{}),
		"push consumer (create a pull": open(f.js, f.stream, "push", pawlnats.Config{}),
		"connection is closed":         open(closed, f.stream, f.consumer, pawlnats.Config{}),
		"JetStream does not answer":    open(domain, f.stream, f.consumer, pawlnats.Config{}),
		"nats.MaxReconnects(-1)":       open(connect(t, f.server.Addr(), nats.NoReconnect()), f.stream, f.consumer, pawlnats.Config{}),
		"60 failed reconnects":         open(connect(t, f.server.Addr(), nats.MaxReconnects(60)), f.stream, f.consumer, pawlnats.Config{}),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := f.js.Consumer(t.Context(), f.stream, "none"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("Open created a consumer: %v", err)
	}
}

// Partitions need an OrderingKey, distinct names, and consumers that keep an order.
func TestOpenPartitions_Refuses(t *testing.T) {
	t.Parallel()
	p := setupPartitions(t, startServer(t), 2)
	by := pawlnats.Config{OrderingKey: pawlnats.BySubject}
	open := func(cfg pawlnats.Config, consumers ...string) error {
		_, err := pawlnats.OpenPartitions(t.Context(), p.js, p.stream, consumers, cfg)
		return err
	}
	for says, err := range map[string]error{
		"allowed are 1 to 256":   open(by),
		"named twice":            open(by, "part-0", "part-1", "part-0"),
		"OrderingKey is missing": open(pawlnats.Config{}, p.consumers...),
		"none does not exist":    open(by, "part-0", "none"),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// Open reports once where a stream may lose messages before they are received.
func TestOpen_WarnsOfStreamsThatLoseMessages(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, c := range []struct {
		stream jetstream.StreamConfig
		says   string
	}{
		{jetstream.StreamConfig{}, ""},
		{jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, "kept in memory"},
		{jetstream.StreamConfig{MaxMsgs: 10}, "drops its oldest"},
		{jetstream.StreamConfig{MaxMsgs: 10, Discard: jetstream.DiscardNew}, ""},
	} {
		var heard []string
		setup(t, options{server: server, stream: c.stream, config: pawlnats.Config{Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventError {
				heard = append(heard, e.Err.Error())
			}
		}}}})
		if all := strings.Join(heard, "\n"); (c.says == "") != (all == "") || !strings.Contains(all, c.says) {
			t.Errorf("%+v: %q", c.stream, all)
		}
	}
}

// The horizon is how long the stream keeps messages, unlimited if it has no MaxAge.
func TestInfo_HorizonIsTheStreams(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for age, want := range map[time.Duration]time.Duration{0: pawl.Forever, 48 * time.Hour: 48 * time.Hour} {
		f := setup(t, options{server: server, stream: jetstream.StreamConfig{MaxAge: age}, consumer: jetstream.ConsumerConfig{MaxRequestBatch: 20}})
		if i := f.source.Info(); i.RedeliveryHorizon != want || i.Cumulative || i.ReceiveBatch != 20 || i.AckBatch < 10 {
			t.Errorf("%v: %+v", age, i)
		}
		if system, destination := f.source.Broker(); system != "nats" || destination != f.stream {
			t.Errorf("broker %s %s", system, destination)
		}
	}
}
