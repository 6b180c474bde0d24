package txn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/watched"
)

// Replicated returns once everything that was visible on the server readOn before the call is
// replicated, as that server's settings demand. If readOn is empty, it returns at once. Call it
// before you return an answer that was only read: the rows may be visible but not yet replicated
// (see schema/api/02_replicated.sql). readOn is [watched.ReadOn], queried in the same statement or
// transaction as the answer. That transaction may have been rolled back.
//
// Calls of one pool share a barrier: it answers all calls made before it begins. The barrier has a
// connection of its own, which is always watched, even if the pool's are not. It is closed after 10
// seconds without a call.
//
// Errors: [pawl.ErrCommitUnknown] if no confirmation arrived within the connections' commit
// timeout, or before ctx ended; it then wraps the cause of ctx. [pawl.ErrCommitUnknown] also if the
// barrier reached another server than readOn: then a failover is in progress, the pool's
// connections are replaced, and the caller must read again. An error of the barrier's connection.
func Replicated(ctx context.Context, pool *pgxpool.Pool, readOn string) error {
	if readOn == "" {
		return nil
	}
	err := barrierOf(pool, func(ctx context.Context) (*pgx.ConnConfig, error) {
		config := pool.Config() // a copy
		if config.BeforeConnect != nil {
			if err := callback.Do("BeforeConnect", func() error { return config.BeforeConnect(ctx, config.ConnConfig) }); err != nil {
				return nil, err
			}
		}
		return config.ConnConfig, nil
	}).wait(ctx, readOn)
	if errors.Is(err, errElsewhere) {
		pool.Reset() // its connections to the former primary would otherwise stay
	}
	return err
}

// ReplicatedSQL is [Replicated] for database/sql on pgx's driver.
func ReplicatedSQL(ctx context.Context, db *sql.DB, readOn string) error {
	if readOn == "" {
		return nil
	}
	err := barrierOf(db, func(ctx context.Context) (config *pgx.ConnConfig, err error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		err = conn.Raw(func(driver any) error {
			c, is := driver.(interface{ Conn() *pgx.Conn })
			if !is {
				return errors.New("the driver is not pgx's")
			}
			config = c.Conn().Config()
			return nil
		})
		return config, err
	}).wait(ctx, readOn)
	if errors.Is(err, errElsewhere) {
		conns.DropIdle(db) // what Reset does for a pgxpool
	}
	return err
}

// errElsewhere means that the answer was read on another server than the barrier reached, so its
// replication is not confirmed.
var errElsewhere = errors.New("this was read on another server than the one that is the primary now")

// Watched reports whether the pool's connections notice commits that stopped waiting for a standby;
// see [pawl.Watch].
func Watched(ctx context.Context, pool *pgxpool.Pool) bool {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false
	}
	defer conn.Release()
	return watched.Is(conn.Conn().PgConn())
}

// emit is a transaction that writes a WAL record, so its COMMIT waits for all WAL before it. It
// returns the server, as [watched.ReadOn] does.
const emit = "select pawl_v1._unreplicated() operator(pg_catalog.->>) 'unreplicated'"

// barrierIdle is how long a barrier keeps its connection after the last call.
const barrierIdle = 10 * time.Second

// A barrier confirms replication for all callers that joined before it began.
type barrier struct {
	pool   any // its key in barriers
	config func(context.Context) (*pgx.ConnConfig, error)
	conn   *pgx.Conn // used by run only

	mu       sync.Mutex
	asking   []chan confirmation
	stale    bool // conn reaches another server than a caller has read on
	running  bool
	patience time.Duration
	wake     chan struct{}
}

// A confirmation is the server on which everything is replicated, or the error that prevented it.
type confirmation struct {
	server string
	err    error
}

// barriers holds one barrier for each pool with recent calls.
var barriers sync.Map

func barrierOf(pool any, config func(context.Context) (*pgx.ConnConfig, error)) *barrier {
	b, there := barriers.Load(pool)
	if !there {
		b, _ = barriers.LoadOrStore(pool, &barrier{pool: pool, config: config, patience: watched.CommitTimeout, wake: make(chan struct{}, 1)})
	}
	return b.(*barrier)
}

// wait joins the next barrier. It succeeds if the barrier reached the server readOn.
func (b *barrier) wait(ctx context.Context, readOn string) error {
	reply := make(chan confirmation, 1)
	b.mu.Lock()
	b.asking = append(b.asking, reply)
	if !b.running {
		b.running = true
		go b.run()
	}
	patience := b.patience
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p := <-reply:
		if p.err == nil && p.server != readOn {
			b.mu.Lock()
			b.stale = true
			b.mu.Unlock()
			return unknown("replicated", errElsewhere)
		}
		return p.err
	case <-timer.C:
		return unknown("replicated", fmt.Errorf("the synchronous standbys did not answer within %v", patience))
	case <-ctx.Done():
		return unknown("replicated", context.Cause(ctx))
	}
}

// run answers the callers. It ends after [barrierIdle] without a call.
func (b *barrier) run() {
	for b.awaken() {
		b.mu.Lock()
		asking, stale := b.asking, b.stale
		b.asking, b.stale = nil, false
		b.mu.Unlock()
		if stale {
			hangUp(b.conn)
			b.conn = nil
		}
		if len(asking) == 0 {
			continue
		}
		p := b.confirm()
		for _, reply := range asking {
			reply <- p
		}
	}
}

// awaken waits for a call. It returns false, and removes the barrier, after [barrierIdle] without
// one.
func (b *barrier) awaken() bool {
	select {
	case <-b.wake:
		return true
	case <-time.After(barrierIdle):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asking) > 0 {
		return true
	}
	hangUp(b.conn)
	b.conn, b.running = nil, false
	barriers.CompareAndDelete(b.pool, b)
	return false
}

// confirm runs one barrier. If the kept connection is broken, it tries once more on a new one.
func (b *barrier) confirm() confirmation {
	for kept := b.conn != nil; ; kept = false {
		var server string
		err := b.connect()
		if err == nil {
			server, err = b.once()
		}
		if err == nil {
			return confirmation{server: server}
		}
		hangUp(b.conn)
		b.conn = nil
		if !kept || errors.Is(err, errCancelled) || errors.Is(err, errPatience) {
			return confirmation{err: err}
		}
	}
}

// once sends a transaction whose COMMIT waits for the standbys, and returns when it was answered.
// Callers have timeouts of their own, and no second backend waits.
func (b *barrier) once() (server string, err error) {
	done := make(chan struct{})
	err = patiently(context.Background(), "replicated", b.conn, func(ctx context.Context) error {
		defer close(done)
		return b.conn.QueryRow(ctx, emit).Scan(&server)
	}, func() bool { return true })
	<-done
	return server, err
}

func (b *barrier) connect() error {
	if b.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), watched.CommitTimeout)
	defer cancel()
	config, err := b.config(ctx)
	if err != nil {
		return pawl.Wrap("replicated", err)
	}
	watched.Install(&config.Config, 0) // 0: keeps the commit timeout of a pool that is watched
	if b.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return pawl.Wrap("replicated", err)
	}
	_, patience := watched.Begin(b.conn.PgConn())
	b.mu.Lock()
	b.patience = patience
	b.mu.Unlock()
	return nil
}

func hangUp(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
