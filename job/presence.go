package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

// presenceAgain is the longest pause between two attempts to connect.
const presenceAgain = 30 * time.Second

// attend holds the session's presence lock on its own connection until depart is called. Without
// the lock, only the lease detects a crash. So no error here ends the session.
func (w *Worker) attend(ctx context.Context, s *session) (depart func()) {
	known := sync.OnceFunc(func() { close(s.presenceKnown) })
	if w.cfg.Presence.Off {
		known()
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		for wait := time.Second; ; wait = min(2*wait, presenceAgain) {
			held, err := w.bePresent(ctx, s, known)
			s.present.Store(false)
			known()
			if ctx.Err() != nil {
				return
			}
			if held {
				wait = time.Second
			}
			w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.presence", Err: err})
			if !pace.Sleep(ctx, wait) {
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// bePresent connects, takes the lock and keeps it. The sweep also runs on this connection: only a
// session some seconds old may judge presence, and pool connections are often younger.
func (w *Worker) bePresent(ctx context.Context, s *session, known func()) (held bool, err error) {
	conn, err := w.connectDirect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	home, err := conns.CheckPooler(ctx, conn, w.connectDirect)
	s.pooled.Store(errors.Is(err, conns.ErrPooler))
	if err != nil {
		return false, throughPooler(err)
	}
	for {
		present, err := contract.WorkerAttend(ctx, conn, s.id)
		if err != nil {
			return false, err
		}
		if present {
			break
		}
		known()
		// A sweep is checking the lock, or the old connection has not ended on the server.
		if !pace.Sleep(ctx, time.Second) {
			return false, ctx.Err()
		}
	}
	s.present.Store(true)
	known()
	if _, err := conn.Exec(ctx, "listen pawl_jobs"); err != nil {
		return true, err
	}
	w.Kick() // finds enqueues from before the LISTEN
	l := &listener{conn: conn, signals: map[*producer]string{}}
	defer l.close()
	for {
		if err := w.listen(ctx, l); ctx.Err() != nil || conn.IsClosed() {
			return true, err
		}
		if w.mayJudge(s) {
			if err := w.sweep(ctx, conn); conns.ReadOnly(err) {
				return true, err // the server has become a standby
			}
		}
		if err := stillAt(ctx, conn, home); err != nil {
			s.pooled.Store(errors.Is(err, conns.ErrPooler))
			return true, throughPooler(err)
		}
	}
}

// listen announces producers and wakes them, until the next sweep is due. Reading notices a closed
// connection. The sweep's query notices one that broke silently.
func (w *Worker) listen(ctx context.Context, l *listener) error {
	ctx, cancel := context.WithTimeout(ctx, w.sweepPause())
	defer cancel()
	for {
		n, err := w.notified(ctx, l)
		if err == nil && n != nil {
			err = w.wake(ctx, l, n.Payload)
		}
		if err != nil {
			return err
		}
	}
}

// awaitPresence waits a second at most: jobs claimed before the session is present wait for the
// lease if the process dies.
func (w *Worker) awaitPresence(ctx context.Context, s *session) {
	select {
	case <-s.presenceKnown:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// stillAt checks that the connection still has session home, which holds the presence lock.
func stillAt(ctx context.Context, conn *pgx.Conn, home uint32) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	session, err := conns.Session(ctx, conn)
	if err == nil && session != home {
		err = conns.ErrPooler
	}
	return err
}

// throughPooler adds a hint to the error of a pooler.
func throughPooler(err error) error {
	if !errors.Is(err, conns.ErrPooler) {
		return err
	}
	return &pawl.Error{Op: "worker.presence", Err: err,
		Hint: "set Presence.URL to a direct connection, or Presence.Off; until then the jobs of a killed process wait for its lease"}
}

// connectDirect connects to Presence.URL, or with the pool's settings.
func (w *Worker) connectDirect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return conns.Direct(ctx, w.pool, w.cfg.Presence.URL)
}
