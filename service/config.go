package service

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// Config configures an [App]. Its zero value suits production. [FromEnv] reads it from the
// environment.
type Config struct {
	// Hooks receive the events of every part, and of the sources, steps, commands and webhooks that
	// parts call and that have no hooks of their own: see [pawl.WithHooks]. A part with hooks of
	// its own calls both. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
	// Presence is the default of every consumer, worker and relay: see [job.Presence].
	Presence job.Presence
	// ShutdownTimeout bounds a shutdown. Handlers get half of it to finish. Then their contexts
	// end, and their jobs and deliveries are released. A handler that ignores its context is
	// abandoned 5 s later, for which a timeout below 20 s has no time. After the ShutdownTimeout
	// Run returns and abandons all that still runs. The platform must allow StopDelay,
	// ShutdownTimeout and some seconds more. Default 25 s, inside the 30 s that Kubernetes and ECS
	// give. At least 1 s.
	ShutdownTimeout time.Duration
	// StopDelay is how long the app goes on working after ctx has ended. [App.Ready] answers 503
	// meanwhile. Set it if a load balancer still sends requests after SIGTERM; 5 s are usual on
	// Kubernetes. Default 0.
	StopDelay time.Duration
	// StallAfter is how long a loop may make no progress, beyond its handlers' timeouts, before the
	// liveness check suspects it. Shorter restarts a stuck process sooner, and may restart a slow
	// one. Default 1 min, at least 1 s.
	StallAfter time.Duration
	// HealthAddress is where the app serves GET /livez and GET /readyz, for example ":8081", from
	// before the first part starts until after the last has ended. Default none: mount [App.Live]
	// and [App.Ready] yourself.
	HealthAddress string

	closes bool // FromEnv made the pool, so Run closes it
}

func (c *Config) complete() error {
	for _, d := range []struct {
		name         string
		value        *time.Duration
		usual, least time.Duration
	}{{"ShutdownTimeout", &c.ShutdownTimeout, 25 * time.Second, time.Second}, {"StopDelay", &c.StopDelay, 0, 0},
		{"StallAfter", &c.StallAfter, time.Minute, time.Second}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < d.least {
			return fmt.Errorf("the %s must be at least %v, it is %v", d.name, d.least, *d.value)
		}
	}
	return nil
}

// The schedule of a shutdown, in fractions of ShutdownTimeout.
//
//	0                   HTTP servers stop accepting
//	at most 1/10 later  consumers stop receiving
//	at most 1/10 later  workers stop claiming, schedules end
//	at most 3/4         sweepers stop
//	at most 1/10 later  relays publish the last events
//	all of it           Run returns
const (
	headStart    = 10 // a stage waits at most a tenth for the one before it
	handlerShare = 2  // handlers of consumers and workers have a half to finish
	relayShare   = 20 // relays have a twentieth to publish, and a twentieth to finish a call
)

func (c *Config) lastStage() time.Duration { return c.ShutdownTimeout * 3 / 4 }

// within returns how long a part lets its handlers finish. It refuses more than the part's share.
func (c *Config) within(own time.Duration, share int) (time.Duration, error) {
	limit := c.ShutdownTimeout / time.Duration(share)
	switch {
	case own > limit:
		return 0, fmt.Errorf("the ShutdownTimeout of %v is more than the %v that the service has for it: set service.Config.ShutdownTimeout to %v or leave it out",
			own, limit, own*time.Duration(share))
	case own > 0:
		return own, nil
	}
	return limit, nil
}

// hooks returns the hooks of a part: the app's, its own, or both.
func (c *Config) hooks(own pawl.Hooks) pawl.Hooks {
	switch {
	case own.OnEvent == nil:
		return c.Hooks
	case c.Hooks.OnEvent == nil:
		return own
	}
	return pawl.Join(c.Hooks, own)
}

func (c *Config) presence(own job.Presence) job.Presence {
	if own == (job.Presence{}) {
		return c.Presence
	}
	return own
}
