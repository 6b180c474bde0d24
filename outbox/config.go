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

// Config configures a [Relay]. Only Publisher is required; the zero value of the rest is fit for production.
type Config struct {
	// Publisher publishes the events.
	Publisher pawl.Sink
	// Sink is whose events: those appended with an [Event.Sink] of this name. Many relays of one sink share the work. Default
	// [DefaultSink], up to 200 octets.
	Sink string
	// Source is the ce-source of events that have none, a URI reference that says which system they come from. Default
	// "/outbox/" and the Sink.
	Source string
	// Batch is the most events a call of Publish is handed. Default 100, at most 500.
	Batch int
	// Run is the most events of one aggregate that a call of PublishRun is handed, if the Publisher is a [pawl.RunSink]. They are in memory
	// beside the events that Concurrency counts. Default 500, at most 1000; 1 publishes no runs.
	Run int
	// Concurrency is how many events are in hand at once: claimed, being published or being finished. More hides the time that
	// each round trip takes; all of them are published again after a crash. Default twenty batches.
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
	defaultBatch = 100
	maxBatch     = 500
	defaultRun   = 500
	maxRun       = 1000
	maxName      = 200
	firstProbe   = 100 * time.Millisecond
)

func (c *Config) complete() error {
	if c.Publisher == nil {
		return errors.New("the field Publisher is required: for a function of yours see Func")
	}
	if c.Sink == "" {
		c.Sink = DefaultSink
	}
	if len(c.Sink) > maxName {
		return fmt.Errorf("the Sink must have at most %d octets, it has %d", maxName, len(c.Sink))
	}
	if c.Source == "" {
		c.Source = "/" + QueueOf(c.Sink)
	}
	for field, text := range map[string]string{"Sink": c.Sink, "Source": c.Source} {
		if strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
			return fmt.Errorf("the %s %q must be UTF-8 without control characters", field, text)
		}
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		return fmt.Errorf("the Batch must lie between 1 and %d, it is %d", maxBatch, c.Batch)
	}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	if c.Run < 0 || c.Run > maxRun {
		return fmt.Errorf("the Run must lie between 1 and %d, it is %d", maxRun, c.Run)
	}
	if c.Run == 0 {
		c.Run = defaultRun
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 20 * c.Batch
	}
	if c.Probe <= 0 {
		c.Probe = 5 * time.Second
	}
	return nil
}
