package pawlsqs_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// If a function of the configuration panics or exits its goroutine, the message becomes a dead
// letter with the reason and its payload. Other messages take effect.
func TestConfig_PanicIsADeadLetter(t *testing.T) {
	t.Parallel()
	key := pawlsqs.KeyAttribute(pawlsqs.DefaultKeyAttribute)
	bad := func(m types.Message) bool { return strings.HasPrefix(*m.Body, "bad") }
	unless := func(how func()) pawlsqs.KeyFrom {
		return pawlsqs.KeyFunc(func(m types.Message) string {
			if bad(m) {
				how()
			}
			return key.KeyOf(m)
		})
	}
	for name, c := range map[string]struct {
		config pawlsqs.Config
		why    string
	}{
		"Key panics": {pawlsqs.Config{Key: unless(func() { panic("no \x00 \xff attribute") })}, "Config.Key: panic: no "},
		"Key exits":  {pawlsqs.Config{Key: unless(runtime.Goexit)}, "Config.Key: the function exited its goroutine"},
		"Unwrap panics": {pawlsqs.Config{Unwrap: func(m types.Message) types.Message {
			if bad(m) {
				m.Body = m.MessageAttributes["none"].StringValue
				_ = *m.Body
			}
			return m
		}}, "Config.Unwrap: panic: runtime error: invalid memory address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, sqstest.Faults{})
			c.config.Wait = time.Second
			source, err := pawlsqs.Open(t.Context(), p.client, "q", c.config)
			p.must(err)
			counters := p.startOn(source, apply)
			p.sendBody("1", "body")
			p.sendBody("2", "bad body")
			p.sendBody("3", "body")
			p.until("everything is settled", func() bool { return p.server.Stats("q").Sent == 3 && p.settled() })
			var body, why string
			p.must(p.pool.QueryRow(t.Context(), `select convert_from(j.payload, 'UTF8'), d.last_error from pawl_v1.dead_letters as d join pawl.job as j on j.id = d.id`).Scan(&body, &why))
			if body != "bad body" || !strings.Contains(why, c.why) || !strings.Contains(name, "exits") && !strings.Contains(why, "panic_test.go:") {
				t.Errorf("a dead letter with %q, because of %q", body, why)
			}
			if n := p.count("select count(*) from effect"); n != 2 || counters.Count(pawl.EventInvalid) != 1 {
				t.Errorf("%d effects, %v", n, counters)
			}
		})
	}
}

// If Key panics for one message of a Lambda event, the function still handles the others.
func TestLambda_PanicIsADeadLetter(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, sqstest.Faults{})
	batch, err := pawlsqs.OpenLambda(lambdaEvent("q", "g/1", "g/2"), pawlsqs.Config{Key: pawlsqs.KeyFunc(func(m types.Message) string {
		if *m.MessageId == "id-g/1" {
			panic("boom")
		}
		return *m.MessageId
	})})
	p.must(err)
	p.startOn(batch, apply)
	patience.Until(t, "all is settled", func() bool { return failuresOf(batch.Response()) == "" })
	p.until("the other took effect", func() bool {
		return p.count("select count(*) from effect") == 1 && p.count("select count(*) from pawl_v1.dead_letters") == 1
	})
}

// If ReleaseDelay panics, the message is released with the delay asked for, and the error holds the
// panic.
func TestReleaseDelay_Panic(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{ReleaseDelay: func(time.Duration, pawl.Delivery) time.Duration { panic("boom") }})
	_, err := f.client.SendMessage(t.Context(), f.plain("body"))
	f.must(err)
	ds, err := f.source.Receive(t.Context(), 1)
	f.must(err)
	err = f.source.Release(t.Context(), 0, ds...)
	if err == nil || !strings.Contains(err.Error(), "Config.ReleaseDelay: panic: boom") {
		t.Error(err)
	}
	if s := f.server.Stats("q"); s.Ready != 1 || s.InFlight != 0 {
		t.Errorf("it was not given back: %+v", s)
	}
}

// A nil KeyFunc is refused when the source is opened.
func TestKeyFunc_Nil(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	_, err := pawlsqs.Open(t.Context(), f.client, "q", pawlsqs.Config{Key: pawlsqs.KeyFunc(nil)})
	if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "KeyFunc is nil") {
		t.Error(err)
	}
}

// A fragile client panics when messages are extended.
type fragile struct {
	pawlsqs.API
	extended atomic.Int64
}

func (f *fragile) ChangeMessageVisibilityBatch(context.Context, *awssqs.ChangeMessageVisibilityBatchInput, ...func(*awssqs.Options)) (*awssqs.ChangeMessageVisibilityBatchOutput, error) {
	f.extended.Add(1)
	panic("a middleware of the client")
}

// A panic of the client in the heartbeat fails that extension, which is retried.
func TestHeartbeat_ClientPanics(t *testing.T) {
	t.Parallel()
	f := overLoopback(t, sqstest.Faults{}, pawlsqs.Config{})
	client := &fragile{API: f.client}
	source, err := pawlsqs.Open(t.Context(), client, "q", pawlsqs.Config{Visibility: 2 * time.Second, Wait: time.Second})
	f.must(err)
	_, err = f.client.SendMessage(t.Context(), f.plain("body"))
	f.must(err)
	patience.Until(t, "a message is held", func() bool {
		ds, err := source.Receive(t.Context(), 1)
		f.must(err)
		return len(ds) == 1
	})
	patience.Until(t, "it was extended again", func() bool { return client.extended.Load() > 1 })
}
