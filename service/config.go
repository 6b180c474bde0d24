package service

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// Config configures an [App]. The zero value is fit for production. [FromEnv] fills it in from the environment.
type Config struct {
	// Hooks receive what happens in every part, and in what the parts call: sources, steps,
	// commands and webhooks without hooks of their own, see [pawl.WithHooks]. A part that has hooks
	// of its own calls both. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
	// Presence of every consumer, worker and relay that has none of its own; see [job.Presence].
	Presence job.Presence
	// ShutdownTimeout is how long a stop takes at most. Handlers get half of it to finish; then their contexts end, and what they held is handed
	// back. A handler that ignores the end of its context is given up 5 s later: below 20 s there is no time for that. What has not ended
	// after all of it is left behind, and Run returns. The platform must allow StopDelay and this, and some seconds more. Default 25 s,
	// inside the 30 s that Kubernetes and ECS give; 1 s at least.
	ShutdownTimeout time.Duration
	// StopDelay is how long the app works on after it was told to stop, while [App.Ready] answers 503 already. Set it where requests still
	// come after SIGTERM because a load balancer has not noticed yet: 5 s is usual on Kubernetes. Default 0.
	StopDelay time.Duration
	// StallAfter is how long a loop may stand still, beyond what its handlers' timeouts explain, before it is suspected of being stuck.
	// Shorter restarts a stuck process sooner, and may restart one that was only slow. Default 1 min, 1 s at least.
	StallAfter time.Duration
	// HealthAddress is where GET /livez and GET /readyz are served, from before the first part starts until after the last has ended, for
	// instance ":8081". Default none: mount [App.Live] and [App.Ready] where you like.
	HealthAddress string

	closes bool // Run closes the pool: FromEnv has made it
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

// What a stop gives to whom, as parts of ShutdownTimeout.
//
//	0                   HTTP servers stop accepting
//	at most 1/10 later  consumers stop receiving
//	at most 1/10 later  workers stop claiming, schedules end
//	at most 3/4         relays look for the last events
//	all of it           Run returns
const (
	headStart    = 10 // each stage but the last begins so much after the one before it at the latest: a tenth
	handlerShare = 2  // consumers and workers let handlers finish for a half
	relayShare   = 20 // relays let a call finish, and are waited for until they have published, for a twentieth
)

func (c *Config) lastStage() time.Duration { return c.ShutdownTimeout * 3 / 4 }

// within returns how long a part lets its handlers finish. One that wants more than there is is refused.
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

// hooks returns those of a part: the app's, its own, or both.
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
