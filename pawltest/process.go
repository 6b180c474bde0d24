package pawltest

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/pace"
)

// A process simulates an operating system process that can die. At its death all of its connections
// are cut and none can be made, so nothing of it reaches the database again. It dies at a statement
// on a watched connection, or at a call of pass.
type process struct {
	name string // of its sessions

	// own is for code around the handler, and watched only while a handler has a transaction of it.
	own   *pgxpool.Pool
	yours *pgxpool.Pool // for the handler; always watched

	gone context.Context // ends when the process dies
	end  context.CancelFunc

	// running is locked while a job's handler runs, and read-locked for a delivery or a request.
	running sync.RWMutex

	mu     sync.Mutex
	at     int // point to die at, from 1; 0: nowhere
	passed int
	// hit is the point at which it died or lost a reply.
	hit   string
	wires map[*wire]bool

	stallAt          int           // statement to stall before, from 1; 0: none
	stalled, resumed chan struct{} // closed when it stalls, and when it goes on; nil before stall
}

type fate int

const (
	goesOn     fate = iota
	diesBefore      // the process dies before it sends the statement
	diesAfter       // the server has executed it; the process dies before the reply
	losesReply      // the server has executed it; the connection is cut
)

func (f fate) at(text string) string {
	switch f {
	case diesBefore:
		return "death before " + text
	case diesAfter:
		return "death after " + text
	}
	return "lost reply to " + text + ", without a death"
}

// processName begins the application_name of a process's connections. The process's number in its
// trial ends it.
const processName = "pawltest process "

func newProcess(ctx context.Context, url, name string) (*process, error) {
	p := &process{name: name, wires: map[*wire]bool{}}
	p.gone, p.end = context.WithCancel(context.Background())
	var err error
	if p.own, err = newPool(ctx, url, p.attach(false), name); err != nil {
		return nil, err
	}
	p.yours, err = newPool(ctx, url, p.attach(true), name)
	return p, err
}

// close closes the pools. Those of a dead process close in the background.
func (p *process) close() {
	if p.dead() {
		go p.own.Close()
		go p.yours.Close()
		return
	}
	p.own.Close()
	p.yours.Close()
}

type attachFunc = func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error)

func newPool(ctx context.Context, url string, attach attachFunc, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.AfterNetConnect = attach
	config.ConnConfig.RuntimeParams["application_name"] = name
	return pgxpool.NewWithConfig(ctx, config)
}

// attach wraps each new connection. A dead process gets none.
func (p *process) attach(watched bool) attachFunc {
	return func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.dead() {
			return conn, errCut
		}
		w := &wire{Conn: conn, process: p, watched: watched, texts: map[string]string{}}
		p.wires[w] = true
		return w, nil
	}
}

// diesAt makes the process die at a point, from 1, of what it does from now on.
func (p *process) diesAt(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.passed = at, 0
}

func (p *process) forget(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

// lend watches the connection of a transaction that a handler gets, until the transaction ends.
func (p *process) lend(conn *pgx.Conn) {
	if w, ok := conn.PgConn().Conn().(*wire); ok {
		w.watch()
	}
}

// statement counts the points of one statement, and returns its fate.
func (p *process) statement(text string) fate {
	text = strings.Join(strings.Fields(text), " ")
	p.mayStall(text)
	fates := []fate{diesBefore, diesAfter}
	if commits(text) {
		fates = append(fates, losesReply)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range fates {
		if p.hits(f.at(shortened(text))) {
			return f
		}
	}
	return goesOn
}

// wasHit reports whether the process died, stalled or lost a reply.
func (p *process) wasHit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hit != ""
}

// commits reports whether the last of several statements is a COMMIT.
func commits(text string) bool {
	return strings.EqualFold(text[strings.LastIndexByte(text, ' ')+1:], "commit")
}

const mostShown = 100 // octets of a statement in a message

var ours = regexp.MustCompile(`pawl_v1\.\w+`)

// shortened returns a statement for messages; of a call of Pawl's SQL functions, their names.
func shortened(text string) string {
	if called := ours.FindAllString(text, -1); called != nil {
		if commits(text) {
			called = append(called, "commit")
		}
		return strings.Join(called, "; ")
	}
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// pass counts a point that is not a statement. It reports whether the process is dead.
func (p *process) pass(point string) (dead bool) {
	p.mu.Lock()
	hit := p.hits("death " + point)
	p.mu.Unlock()
	if hit {
		p.die()
	}
	return p.dead()
}

func (p *process) dead() bool { return p.gone.Err() != nil }

// hits counts one point, and reports whether it is the one to die at. The caller holds mu.
func (p *process) hits(point string) bool {
	p.passed++
	if p.passed != p.at {
		return false
	}
	p.hit = fmt.Sprintf("%s (point %d)", point, p.at)
	return true
}

// last returns the point at which the process died or lost a reply, or "". It will not die later.
func (p *process) last() (point string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = 0
	return p.hit
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	for w := range p.wires {
		// No Terminate message, as when the kernel closes the socket of a dead process.
		_ = w.Conn.Close()
	}
	clear(p.wires)
}

// grace is how long handlers may take to notice that their process died.
const grace = 500 * time.Millisecond

// live runs work until it returns or the process dies. Slow handlers are abandoned after grace.
func (p *process) live(ctx context.Context, work life) (contents, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.gone, cancel)()
	type result struct {
		response contents
		err      error
	}
	done, idle := make(chan result, 1), make(chan struct{})
	go func() {
		response, err := work(ctx)
		done <- result{response, err}
	}()
	select {
	case o := <-done:
		return o.response, o.err
	case <-p.gone.Done():
	}
	go func() {
		defer close(idle)
		p.running.Lock()
		defer p.running.Unlock()
	}()
	select {
	case <-idle:
	case <-time.After(grace):
	}
	return nil, errCut
}

// bury waits until the server has ended the sessions of a dead process, and so their transactions
// and locks. Then it expires its leases.
func bury(ctx context.Context, eyes *pgxpool.Pool) error {
	for n := 1; n > 0; {
		err := eyes.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name like $1 || '%'", processName).Scan(&n)
		if err != nil {
			return err
		}
		if n > 0 && !pace.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("the server still has %d connections of the dead process: %w", n, ctx.Err())
		}
	}
	return expire(ctx, eyes)
}

// expire moves the timestamps of Pawl's rows past every lease and every pause before a probe, and
// runs the sweep. It moves rows, not clocks.
func expire(ctx context.Context, pool *pgxpool.Pool) error {
	for _, move := range []string{
		"update pawl.worker set seen_at = clock_timestamp() - lease * 2",
		"update pawl.command set lease_expires_at = clock_timestamp() - interval '1 minute' where lease_expires_at is not null",
		"update pawl.step_call set started_at = started_at - interval '2 days', not_after = not_after - interval '2 days' where ended_at is null",
	} {
		if _, err := pool.Exec(ctx, move); err != nil {
			return err
		}
	}
	_, err := contract.JobSweep(ctx, pool, []string{}, 0)
	return err
}
