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

// presenceAgain is the longest pause between two tries to connect.
const presenceAgain = 30 * time.Second

// attend holds the session's presence lock on a connection of its own until the returned function is called. Without the
// lock the lease alone decides, which costs time after a crash and nothing else; so no error here ends anything.
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

// bePresent connects, takes the lock and keeps it for as long as the connection lives. The sweep runs on it too: only a
// session that is some seconds old may judge by presence, and those of a pool come and go.
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
		if !pace.Sleep(ctx, time.Second) { // a sweep is looking, or the server has not noticed the old connection's end
			return false, ctx.Err()
		}
	}
	s.present.Store(true)
	known()
	if _, err := conn.Exec(ctx, "listen pawl_jobs"); err != nil {
		return true, err
	}
	w.Kick() // for what was not heard until now
	l := &listener{conn: conn, signals: map[*producer]string{}}
	defer l.close()
	for {
		if err := w.listen(ctx, l); ctx.Err() != nil || conn.IsClosed() {
			return true, err
		}
		if w.mayJudge(s) {
			if err := w.sweep(ctx, conn); conns.ReadOnly(err) {
				return true, err // it led to a server that is a standby now
			}
		}
		if err := stillAt(ctx, conn, home); err != nil {
			s.pooled.Store(errors.Is(err, conns.ErrPooler))
			return true, throughPooler(err)
		}
	}
}

// listen lets producers sleep and wakes them until it is time for the next sweep. Reading notices at once that the server closed the connection;
// asking, which follows, notices one that died in silence.
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

// awaitPresence waits, for a second at most, until it is known whether the session is present: what
// a process claims that dies at once would else wait for the lease.
func (w *Worker) awaitPresence(ctx context.Context, s *session) {
	select {
	case <-s.presenceKnown:
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// stillAt asks which session answers. Another one than home does not hold the presence lock.
func stillAt(ctx context.Context, conn *pgx.Conn, home uint32) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	session, err := conns.Session(ctx, conn)
	if err == nil && session != home {
		err = conns.ErrPooler
	}
	return err
}

// throughPooler adds the next step to what a pooler makes impossible.
func throughPooler(err error) error {
	if !errors.Is(err, conns.ErrPooler) {
		return err
	}
	return &pawl.Error{Op: "worker.presence", Err: err,
		Hint: "set Presence.URL to a direct connection, or Presence.Off; until then the jobs of a killed process wait for its lease"}
}

// connectDirect connects as the pool does, or to Presence.URL.
func (w *Worker) connectDirect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return conns.Direct(ctx, w.pool, w.cfg.Presence.URL)
}
