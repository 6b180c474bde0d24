package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// Config configures a [Relay]. Only Sink is required; the zero value of the rest is fit for production.
type Config struct {
	// Sink publishes the events.
	Sink pawl.Sink
	// SinkName selects the events to publish: those that were appended with this [Event.SinkName].
	// Relays with the same SinkName share the work. Default [DefaultSink], up to 200 octets.
	SinkName string
	// Source is the ce-source of events that have none, a URI reference that says which system they come from. Default
	// "/outbox/" and the SinkName.
	Source string
	// MaxPublish is the most events that one call of Publish is handed, all of different aggregates
	// or of none. Default 100, 1 to 500.
	MaxPublish int
	// MaxBatch is the most events of one aggregate that one call of PublishBatch is handed, if the
	// Sink is a [pawl.BatchSink]. The first of them counts in Concurrency; the relay holds the others
	// in memory beside it. Default 500, 1 to 1000. With 1 the relay calls Publish only.
	MaxBatch int
	// Concurrency is how many events are in hand at once: claimed, being published or being finished. More hides the time that
	// each round trip takes; all of them are published again after a crash. Default 20 times MaxPublish.
	Concurrency int
	// Timeout ends the context of a call of Publish. Default 30 s.
	Timeout time.Duration
	// Backoff between the tries of one event that the sink refuses.
	Backoff job.Backoff
	// Probe is the longest pause between two tries of a sink that is down; the first is 100 ms. Longer spares the sink, shorter
	// finds out sooner. Default 5 s.
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
		return errors.New("the field Sink is required: for a function of yours see Func")
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
	if c.MaxPublish < 0 || c.MaxPublish > maxPublish {
		return fmt.Errorf("the MaxPublish must lie between 1 and %d, it is %d", maxPublish, c.MaxPublish)
	}
	if c.MaxPublish == 0 {
		c.MaxPublish = defaultPublish
	}
	if c.MaxBatch < 0 || c.MaxBatch > maxBatch {
		return fmt.Errorf("the MaxBatch must lie between 1 and %d, it is %d", maxBatch, c.MaxBatch)
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = defaultBatch
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 20 * c.MaxPublish
	}
	if c.Probe <= 0 {
		c.Probe = 5 * time.Second
	}
	return nil
}
