package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/job"
)

// Config configures a [Relay]. Only Sink is required; zero values are fit for production.
type Config struct {
	// Sink publishes the events.
	Sink pawl.Sink
	// SinkName selects the events to publish: those appended with this [Event.SinkName]. Relays
	// with the same SinkName share the work. Default [DefaultSink], up to 200 octets.
	SinkName string
	// Source is the ce-source of events without one: a URI reference that names the sending system.
	// Default "/outbox/" and the SinkName.
	Source string
	// MaxPublish is the most events in one call of Publish, all of different aggregates or of none.
	// Default 100, 1 to 500.
	MaxPublish int
	// MaxBatch is the most events of one aggregate that one call of PublishBatch gets, if the Sink
	// is a [pawl.BatchSink]. Only the first of them counts in Concurrency; the relay also holds the
	// others in memory. Default 500, 1 to 1000. With 1 the relay calls only Publish.
	MaxBatch int
	// Concurrency is how many events the relay holds: claimed, being published or being finished.
	// More hides round-trip times, but a crash publishes all of them again. Default 20 times
	// MaxPublish.
	Concurrency int
	// Timeout ends the context of a call of Publish. Default 30 s.
	Timeout time.Duration
	// Backoff is the delay between attempts of an event that the sink refuses. Default that of
	// [job.Backoff].
	Backoff job.Backoff
	// Probe is the longest pause between attempts to reach a sink that is down; the first is 100
	// ms. Longer spares the sink; shorter detects recovery sooner. Default 5 s.
	Probe time.Duration
	// Poll, Lease, Presence, MaxCrashes, ShutdownTimeout, Name and Hooks are those of [job.Config].
	Poll            time.Duration
	Lease           time.Duration
	Presence        job.Presence
	MaxCrashes      int
	ShutdownTimeout time.Duration
	Name            string
	Hooks           pawl.Hooks
}

const (
	defaultPublish = 100
	maxPublish     = 500
	defaultBatch   = 500
	maxBatch       = 1000
	maxName        = 200
	firstProbe     = 100 * time.Millisecond
)

func (c *Config) complete() error {
	if c.Sink == nil {
		return errors.New("the field Sink is required: to publish with a function, see Func")
	}
	if err := ranges.NotNegative(*c); err != nil {
		return err
	}
	if c.SinkName == "" {
		c.SinkName = DefaultSink
	}
	if len(c.SinkName) > maxName {
		return fmt.Errorf("the SinkName must have at most %d octets, it has %d", maxName, len(c.SinkName))
	}
	if c.Source == "" {
		c.Source = "/" + QueueOf(c.SinkName)
	}
	for field, text := range map[string]string{"SinkName": c.SinkName, "Source": c.Source} {
		if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
			return fmt.Errorf("the %s %q must be UTF-8 without control characters", field, text)
		}
	}
	if c.MaxPublish > maxPublish {
		return fmt.Errorf("the MaxPublish must lie between 1 and %d, it is %d", maxPublish, c.MaxPublish)
	}
	if c.MaxPublish == 0 {
		c.MaxPublish = defaultPublish
	}
	if c.MaxBatch > maxBatch {
		return fmt.Errorf("the MaxBatch must lie between 1 and %d, it is %d", maxBatch, c.MaxBatch)
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = defaultBatch
	}
	if c.Concurrency == 0 {
		c.Concurrency = 20 * c.MaxPublish
	}
	if c.Probe == 0 {
		c.Probe = 5 * time.Second
	}
	return nil
}
