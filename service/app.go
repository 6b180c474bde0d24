package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/schedule"
)

// An App is a program's parts and the pool that they share. Add the parts, then call [App.Run]; what is wrong with a part is an error of Run.
type App struct {
	pool    *pgxpool.Pool
	cfg     Config
	parts   []*part
	begun   atomic.Bool
	started atomic.Bool // all parts are at work
	stopped atomic.Bool // it was told to stop
	health  health
	house   *housekeeper
}

// New returns an app without parts.
//
// Errors: [pawl.ErrArgumentInvalid], with the field and what to set instead.
func New(pool *pgxpool.Pool, cfg Config) (*App, error) {
	if pool == nil {
		return nil, invalid("service.new", errors.New("the pool is missing"))
	}
	if err := cfg.complete(); err != nil {
		return nil, invalid("service.new", err)
	}
	return &App{pool: pool, cfg: cfg, house: newHousekeeper(pool)}, nil
}

func invalid(op string, err error) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: err}
}

// Consumer adds a consumer. Its Hooks, Presence, ShutdownTimeout and MaxConns follow from the app unless they are set; a ShutdownTimeout above
// half of the app's is refused by Run.
func (a *App) Consumer(cfg consumer.Config) {
	a.add(&part{name: "consumer " + cfg.Name, stage: stageConsume, least: least(cfg.MaxConns, cfg.MinConns()), grows: cfg.MaxConns == 0,
		abandon: func(ctx context.Context) error { return finish(ctx, cfg.Source) },
		build: func(share int) (r runner, err error) {
			cfg.Hooks, cfg.Presence, cfg.MaxConns = a.cfg.hooks(cfg.Hooks), a.cfg.presence(cfg.Presence), share
			if cfg.ShutdownTimeout, err = a.cfg.within(cfg.ShutdownTimeout, handlerShare); err != nil {
				return nil, err
			}
			return consumer.New(a.pool, cfg)
		}})
}

// Worker adds a worker of jobs. What follows from the app is as with [App.Consumer].
func (a *App) Worker(cfg job.Config) {
	name := "worker"
	for _, q := range cfg.Queues {
		name += " " + q.Name
	}
	a.add(&part{name: name, stage: StageWork, least: least(cfg.MaxConns, cfg.MinConns()),
		grows: cfg.MaxConns == 0 && cfg.MinConns() > conns.Housekeeping, // else its handlers take none
		build: func(share int) (r runner, err error) {
			cfg.Hooks, cfg.Presence, cfg.MaxConns = a.cfg.hooks(cfg.Hooks), a.cfg.presence(cfg.Presence), share
			if cfg.ShutdownTimeout, err = a.cfg.within(cfg.ShutdownTimeout, handlerShare); err != nil {
				return nil, err
			}
			return job.NewWorker(a.pool, cfg)
		}})
}

// Relay adds a relay of the outbox. Its Hooks, Presence and ShutdownTimeout follow from the app unless they are set; a ShutdownTimeout above a
// twentieth of the app's is refused by Run. When the app stops, the relay first publishes the events that are due, for a twentieth of the
// app's ShutdownTimeout at most.
func (a *App) Relay(cfg outbox.Config) {
	if cfg.SinkName == "" {
		cfg.SinkName = outbox.DefaultSink
	}
	a.add(&part{name: "relay " + cfg.SinkName, stage: StagePublish, least: conns.Housekeeping, publishes: outbox.QueueOf(cfg.SinkName),
		build: func(int) (r runner, err error) {
			cfg.Hooks, cfg.Presence = a.cfg.hooks(cfg.Hooks), a.cfg.presence(cfg.Presence)
			if cfg.ShutdownTimeout, err = a.cfg.within(cfg.ShutdownTimeout, relayShare); err != nil {
				return nil, err
			}
			return outbox.NewRelay(a.pool, cfg)
		}})
}

// Schedules adds a keeper, which enqueues the ticks of all schedules. Its Hooks are the app's unless they are set.
func (a *App) Schedules(cfg schedule.Config) {
	a.add(&part{name: "schedules", stage: StageWork, least: 1, build: func(int) (runner, error) {
		cfg.Hooks = a.cfg.hooks(cfg.Hooks)
		return schedule.NewKeeper(a.pool, cfg)
	}})
}

// HTTPConfig configures an HTTP server: of commands, of webhooks, of your own pages. Handler or Server is required, and Listener or Address.
type HTTPConfig struct {
	// Listener, or else Address, is where it serves: Run opens an Address before it starts anything.
	Listener net.Listener
	Address  string
	// Handler answers the requests. A webhook's [webhook.Receiver] is such a handler, and the Source of a consumer that is a part of its own.
	//
	// [webhook.Receiver]: https://pkg.go.dev/github.com/pawl-go/pawl/transport/webhook#Receiver
	Handler http.Handler
	// Server, if not nil, serves in place of one with a ReadHeaderTimeout of 10 s and no other limits. Its Handler is used if Handler is nil.
	// With a TLSConfig it serves TLS. A BaseContext of its own should carry the hooks: [pawl.WithHooks].
	Server *http.Server
	// MaxConns is how many connections of the pool the requests take at once. Nothing keeps them from taking more while others are free: it is
	// what the other parts leave to them. 0 if they take none, as those of a webhook's receiver.
	MaxConns int
}

// HTTP adds an HTTP server. When the app stops, it stops accepting first. Requests under way have three fifths of the app's ShutdownTimeout
// to finish; then their connections are closed.
func (a *App) HTTP(cfg HTTPConfig) {
	p := &part{name: "HTTP " + cfg.Address, stage: StageReceive, least: max(0, cfg.MaxConns)}
	if cfg.Listener != nil {
		p.name = "HTTP " + cfg.Listener.Addr().String()
		p.abandon = func(context.Context) error {
			_ = cfg.Listener.Close() // once more, if it was served
			return nil
		}
	}
	p.build = func(int) (runner, error) { return newServer(cfg, a) }
	a.add(p)
}

// A Part is anything else that runs until its context ends. Only Name and Run are required.
type Part struct {
	// Name is shown in errors.
	Name string
	// Run works until ctx ends and then stops in good order. If it returns an error before, the app stops and Run of the app returns it; nil is
	// no reason to stop.
	Run func(ctx context.Context) error
	// Ready, if not nil, is closed when the part is at work. What starts after it waits.
	Ready <-chan struct{}
	// MaxConns is how many connections of the pool it takes at once. Default 0.
	MaxConns int
	// Stage says when it starts and stops. Default StageWork.
	Stage Stage
}

// Add adds a part of your own: a [webhook.Reconciler] for instance, or a consumer that you have made yourself.
//
// [webhook.Reconciler]: https://pkg.go.dev/github.com/pawl-go/pawl/transport/webhook#Reconciler
func (a *App) Add(p Part) {
	a.add(&part{name: p.Name, stage: p.Stage, least: max(0, p.MaxConns), mayEnd: true, build: func(int) (runner, error) {
		switch {
		case p.Name == "" || p.Run == nil:
			return nil, invalid("service.add", errors.New("a Part needs a Name and a Run"))
		case p.Stage < StageWork || p.Stage > StagePublish:
			return nil, invalid("service.add", fmt.Errorf("the Stage of %s is StageReceive, StageWork or StagePublish, not %d", p.Name, p.Stage))
		}
		return custom{p}, nil
	}})
}

func (a *App) add(p *part) { a.parts = append(a.parts, p) }

// least is what a part needs of the pool: its limit if it has one.
func least(limit, needed int) int {
	if limit > 0 {
		return limit
	}
	return needed
}

// A custom part is one of the user's.
type custom struct{ part Part }

func (c custom) Run(ctx context.Context) error {
	return callback.Do("Part.Run", func() error { return c.part.Run(ctx) })
}

func (c custom) Ready() <-chan struct{} { return c.part.Ready }
