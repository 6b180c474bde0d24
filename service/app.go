package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/ranges"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/schedule"
)

// An App is a program's parts and the pool that they share. Add the parts, then call [App.Run]. Run
// returns the errors in the configuration of parts.
type App struct {
	pool    *pgxpool.Pool
	cfg     Config
	parts   []*part
	begun   atomic.Bool
	started atomic.Bool // all parts are at work
	stopped atomic.Bool // it is shutting down
	health  health
	house   *housekeeper
}

// New returns an app without parts.
//
// Errors: [pawl.ErrArgumentInvalid], with the field and the value to set.
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

// Consumer adds a consumer. Unless you set them, its Hooks, Presence, ShutdownTimeout and MaxConns
// come from the app. Run refuses a ShutdownTimeout above half of the app's.
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

// Worker adds a worker of jobs. The same fields as for [App.Consumer] come from the app.
func (a *App) Worker(cfg job.Config) {
	name := "worker"
	for _, q := range cfg.Queues {
		name += " " + q.Name
	}
	a.add(&part{name: name, stage: StageWork, least: least(cfg.MaxConns, cfg.MinConns()),
		// Otherwise its handlers take no connections.
		grows: cfg.MaxConns == 0 && cfg.MinConns() > conns.Housekeeping,
		build: func(share int) (r runner, err error) {
			cfg.Hooks, cfg.Presence, cfg.MaxConns = a.cfg.hooks(cfg.Hooks), a.cfg.presence(cfg.Presence), share
			if cfg.ShutdownTimeout, err = a.cfg.within(cfg.ShutdownTimeout, handlerShare); err != nil {
				return nil, err
			}
			return job.NewWorker(a.pool, cfg)
		}})
}

// Relay adds a relay of the outbox. Unless you set them, its Hooks, Presence and ShutdownTimeout
// come from the app. Run refuses a ShutdownTimeout above a twentieth of the app's. When the app
// shuts down, the relay first publishes due events, for at most a twentieth of the app's
// ShutdownTimeout.
func (a *App) Relay(cfg outbox.Config) {
	cfg.SinkName = cmp.Or(cfg.SinkName, outbox.DefaultSink)
	a.add(&part{name: "relay " + cfg.SinkName, stage: StagePublish, least: conns.Housekeeping, publishes: outbox.QueueOf(cfg.SinkName),
		build: func(int) (r runner, err error) {
			cfg.Hooks, cfg.Presence = a.cfg.hooks(cfg.Hooks), a.cfg.presence(cfg.Presence)
			if cfg.ShutdownTimeout, err = a.cfg.within(cfg.ShutdownTimeout, relayShare); err != nil {
				return nil, err
			}
			return outbox.NewRelay(a.pool, cfg)
		}})
}

// Schedules adds a keeper, which enqueues the ticks of all schedules. Unless you set them, its
// Hooks come from the app.
func (a *App) Schedules(cfg schedule.Config) {
	a.add(&part{name: "schedules", stage: StageWork, least: 1, build: func(int) (runner, error) {
		cfg.Hooks = a.cfg.hooks(cfg.Hooks)
		return schedule.NewKeeper(a.pool, cfg)
	}})
}

// Sweeper adds a sweeper of rows: see [guard.Rows.Sweeper]. Unless you set them, its Hooks come
// from the app. It starts before the parts that claim rows, and stops after their handlers have had
// their time, since [guard.Rows.Claim] needs it. Then the context of drive ends.
func (a *App) Sweeper(rows *guard.Rows, cfg guard.SweeperConfig, drive func(ctx context.Context, id string) error) {
	name := "sweeper"
	if rows != nil {
		name += " " + rows.Table().Name
	}
	a.add(&part{name: name, stage: stageSweep, least: 1, build: func(int) (runner, error) {
		if rows == nil {
			return nil, invalid("service.sweeper", errors.New("the Rows are missing"))
		}
		cfg.Hooks = a.cfg.hooks(cfg.Hooks)
		return rows.Sweeper(cfg, drive)
	}})
}

// HTTPConfig configures an HTTP server. Handler or Server is required, and Listener or Address.
type HTTPConfig struct {
	// Listener, or else Address, is where the server accepts connections. Run opens the Address
	// before it starts any part.
	Listener net.Listener
	Address  string
	// Handler answers requests. A [webhook.Receiver] is such a handler, and also the Source of a
	// consumer, which you add as another part.
	//
	// [webhook.Receiver]: https://pkg.go.dev/github.com/pawl-go/pawl/transport/webhook#Receiver
	Handler http.Handler
	// Server replaces the default server, which has a ReadHeaderTimeout of 10 s and no other
	// limits. Its Handler is used if Handler is nil. If it has a TLSConfig it serves TLS. If it has
	// a BaseContext, add the hooks to it with [pawl.WithHooks].
	Server *http.Server
	// MaxConns is the number of connections that the other parts leave to requests. It does not
	// limit requests: they may take more while connections are free. Set 0 if requests take none,
	// as those of a webhook's receiver.
	MaxConns int
}

// HTTP adds an HTTP server. When the app shuts down, the server first stops accepting connections.
// Running requests have three fifths of the app's ShutdownTimeout to finish; then their connections
// are closed.
func (a *App) HTTP(cfg HTTPConfig) {
	p := &part{name: "HTTP " + cfg.Address, stage: StageReceive, least: max(0, cfg.MaxConns)}
	if cfg.Listener != nil {
		p.name = "HTTP " + cfg.Listener.Addr().String()
		p.abandon = func(context.Context) error {
			_ = cfg.Listener.Close() // a second time if it was served
			return nil
		}
	}
	p.build = func(int) (runner, error) { return newServer(cfg, a) }
	a.add(p)
}

// A Part is any other component that runs until its context ends. Only Name and Run are required.
type Part struct {
	// Name is shown in errors.
	Name string
	// Run works until ctx ends, then shuts down. If it returns an error earlier, the app shuts down
	// and [App.Run] returns that error. If it returns nil earlier, the app goes on.
	Run func(ctx context.Context) error
	// Ready, if not nil, is closed when the part is at work. Parts that start later wait for it.
	Ready <-chan struct{}
	// MaxConns is the most connections of the pool that it takes at once. Default 0.
	MaxConns int
	// Stage is when it starts and stops. Default StageWork.
	Stage Stage
}

// Add adds another part, such as a [webhook.Reconciler] or a consumer that you made yourself.
//
// [webhook.Reconciler]: https://pkg.go.dev/github.com/pawl-go/pawl/transport/webhook#Reconciler
func (a *App) Add(p Part) {
	a.add(&part{name: p.Name, stage: p.Stage, least: max(0, p.MaxConns), mayEnd: true, build: func(int) (runner, error) {
		if err := ranges.NotNegative(p); err != nil {
			return nil, invalid("service.add", err)
		}
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

// least returns how many connections a part needs: its limit if it has one.
func least(limit, needed int) int {
	if limit > 0 {
		return limit
	}
	return needed
}

// A custom is a part of the user.
type custom struct{ part Part }

func (c custom) Run(ctx context.Context) error {
	return callback.Do("Part.Run", func() error { return c.part.Run(ctx) })
}

func (c custom) Ready() <-chan struct{} { return c.part.Ready }
