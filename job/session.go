package job

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/migrate"
)

// A session is one registration of the worker: a row, and the lease of the jobs claimed under it.
// When the lease is lost, the handlers' contexts end and a new session begins.
type session struct {
	id         int64
	ctx        context.Context    // parent of the handlers' contexts
	end        context.CancelFunc // ends ctx; see lose
	doubtful   context.Context    // ended by doubt; see claimFailed
	doubt      context.CancelFunc
	began      time.Time
	beat       time.Time   // last renewal, on the monotonic clock; only keepAlive uses it
	watched    bool        // txn.Watched of the pool
	reported   time.Time   // time of the last heartbeat with a report; only keepAlive uses it
	givenUp    atomic.Bool // giveUp has emitted its event
	present    atomic.Bool // the presence lock is held
	pooled     atomic.Bool // the presence connection goes through a pooler
	lastReport reported    // only keepAlive uses it
	checked    time.Time   // last check for hidden rows; only keepAlive uses it
	// recalls are from the reply to the last heartbeat. The next one acknowledges them.
	recalls       []int64
	presenceKnown chan struct{} // closed when the session is present, or cannot be
	depart        func()        // ends the presence

	quiet    context.Context // context of its jobs' events; it never ends
	inFlight inFlight
}

func (s *session) lost() bool { return s.ctx.Err() != nil }

// lose ends the handlers' contexts.
func (s *session) lose() { s.end() }

// inFlight holds the attempts of a session.
type inFlight struct {
	mu  sync.Mutex
	all map[*attempt]struct{}
}

func (f *inFlight) add(all []*attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*attempt]struct{}{}
	}
	for _, a := range all {
		f.all[a] = struct{}{}
	}
}

func (f *inFlight) remove(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, a)
}

// running returns the jobs whose handlers have not returned.
func (f *inFlight) running() (jobs []Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a := range f.all {
		if running := a.running.Load(); running != nil {
			jobs = append(jobs, *running...)
		}
	}
	return jobs
}

// recall cancels the contexts of the attempts at these jobs.
func (f *inFlight) recall(ids []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a := range f.all {
		if slices.ContainsFunc(a.jobs, func(j Job) bool { return slices.Contains(ids, j.ID) }) {
			a.cancel(errRecalled)
		}
	}
}

// errRecalled is the cause of a context that ends because an operator cancelled the job.
var errRecalled = errors.New("an operator has recalled the job")

// register begins a session. If ctx ends meanwhile, register still waits for the reply, up to
// statementLimit. A worker that does not know its id cannot leave, and would count as crashed.
func (w *Worker) register(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(statementLimit, cancel) })()
	asked := time.Now()
	id, err := contract.WorkerRegister(asking, w.pool, w.cfg.Name, w.cfg.Lease, w.queues())
	if err != nil {
		return nil, err
	}
	s := &session{id: id, began: asked, beat: asked, presenceKnown: make(chan struct{})}
	s.quiet = context.WithoutCancel(ctx)
	s.ctx, s.end = context.WithCancel(s.quiet)
	s.doubtful, s.doubt = context.WithCancel(context.Background())
	s.watched = txn.Watched(ctx, w.pool)
	s.depart = w.attend(ctx, s)
	return s, nil
}

// queues returns the names of the worker's queues.
func (w *Worker) queues() (names []string) {
	for _, p := range w.producers {
		names = append(names, p.queue.Name)
	}
	return names
}

// registerAgain retries until the database is reachable. First it releases the jobs of the old
// session. An outage is not a crash, and a sweep would count it as one.
func (w *Worker) registerAgain(ctx context.Context, old *session) (*session, error) {
	w.forgetUnsettled() // leave releases them
	pace.Sleep(ctx, w.cfg.Poll)
	for {
		err := w.leave(ctx, old, nil)
		if err == nil {
			var s *session
			if s, err = w.register(ctx); err == nil {
				return s, nil
			}
		}
		if ctx.Err() == nil {
			w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.register", Err: err})
		}
		if !pace.Sleep(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}

// beatEvery is the longest pause between heartbeats, for any lease. A worker that is silent for 1.5
// s while its presence lock is free counts as dead.
const beatEvery = 500 * time.Millisecond

// keepAlive renews the lease and receives recalls. It gives the session up if the database has
// ended it, or if the next reply might come after the lease has ended. A heartbeat counts from
// before it was sent, on the monotonic clock, so a process that was frozen notices that it is late.
func (w *Worker) keepAlive(ctx context.Context, s *session) {
	step := w.cfg.Lease / 6
	for pace.Sleep(ctx, min(beatEvery, step)) {
		asked := time.Now()
		var report *contract.WorkerReport
		if now := w.reportable(s); asked.Sub(s.reported) >= reportEvery || now != s.lastReport {
			report = w.report(s.watched)
			report.Pooled, report.Wakeups = now.pooled, now.wakeups
		}
		beat, cancel := context.WithTimeout(ctx, step)
		row, err := contract.WorkerHeartbeat(beat, w.pool, s.id, s.present.Load(), s.recalls, report)
		cancel()
		switch {
		case err == nil && row.Alive:
			s.beat, s.recalls = asked, row.Recalls
			if report != nil {
				s.reported, s.lastReport = asked, reported{report.Pooled, report.Wakeups}
			}
			w.recall(ctx, s, row.Recalled)
			if row.Hidden && asked.Sub(s.checked) >= hiddenEvery {
				s.checked = asked
				w.emitHidden(ctx)
			}
		case err == nil:
			w.giveUp(ctx, s, &pawl.Error{Op: "worker.heartbeat", Code: pawl.CodeFenceLost})
			return
		case ctx.Err() != nil:
		case time.Since(s.beat)+2*step > w.cfg.Lease:
			w.giveUp(ctx, s, err)
			return
		default:
			w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.heartbeat", Err: err})
		}
	}
}

// hiddenEvery is the shortest pause between events that row level security hides jobs.
const hiddenEvery = time.Minute

// emitHidden emits an event if row level security hides jobs from the worker, because it was turned
// on while the worker ran. Claims then find no jobs.
func (w *Worker) emitHidden(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if err := migrate.Check(ctx, w.pool); errors.Is(err, pawl.ErrSchemaMismatch) {
		w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.heartbeat", Err: err})
	}
}

func (w *Worker) recall(ctx context.Context, s *session, ids []int64) {
	for _, id := range ids {
		w.emit(ctx, pawl.Event{Kind: pawl.EventCancelled, Op: "job.recall", JobID: id})
	}
	if len(ids) > 0 {
		s.inFlight.recall(ids)
	}
}

// giveUp ends the session after its lease was lost. Only the first call emits the event.
func (w *Worker) giveUp(ctx context.Context, s *session, why error) {
	if s.givenUp.CompareAndSwap(false, true) {
		w.emit(ctx, pawl.Event{Kind: pawl.EventError, Op: "worker.lease_lost", Err: why})
	}
	s.lose()
}

// leave ends the session. It releases all its jobs at once, uncharged, except the abandoned ones.
func (w *Worker) leave(ctx context.Context, s *session, abandoned []int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	_, err := contract.WorkerLeave(ctx, w.pool, s.id, abandoned)
	if err == nil {
		s.depart()
	}
	return err
}

// abandoned returns the jobs whose handlers run on after a stop has ended their contexts, and emits
// an event for each. They count as crashed, because such a handler may be why the process stops. If
// they were released uncharged, it could stop every process in turn, for ever.
func (w *Worker) abandoned(s *session) (ids []int64) {
	for _, j := range s.inFlight.running() {
		e := w.event([]Job{j}, "worker.leave", errAbandoned)
		e.Kind = pawl.EventWastedWork
		w.emit(s.ctx, e)
		ids = append(ids, j.ID)
	}
	return ids
}

var errAbandoned = errors.New("the worker stopped, and the handler ignored the end of its context; this counts as a crash of the job: let the handler return when its context ends")
