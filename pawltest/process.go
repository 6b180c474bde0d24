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

// A process stands for one that dies. When it does, all of its connections are cut at the same moment and none is made any more, so that
// nothing of it reaches the database again: what goes on after a death does so in another process. It dies at a statement that is sent
// on a watched connection, or where pass is called.
type process struct {
	own   *pgxpool.Pool // of what surrounds the handler; watched only while a transaction of it is lent
	yours *pgxpool.Pool // of the handler; always watched

	gone context.Context // ends when it dies
	end  context.CancelFunc

	running sync.RWMutex // locked while the handler of a job runs, read-locked while a delivery or a request is handled

	mu     sync.Mutex
	at     int // the place to die at, from 1; 0: nowhere
	passed int
	hit    string // the place at which it died, or lost a reply
	wires  map[*wire]bool
}

// A fate is what becomes of a statement.
type fate int

const (
	goesOn     fate = iota
	diesBefore      // the process dies before the statement is sent
	diesAfter       // the server has done it, and the process dies before it hears so
	losesReply      // the server has done it, the connection is cut, and the process goes on
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

// processName marks the connections of a process.
const processName = "pawltest process"

// newProcess begins a process on a database, which dies at a place.
func newProcess(ctx context.Context, url string, at int) (*process, error) {
	p := &process{at: at, wires: map[*wire]bool{}}
	p.gone, p.end = context.WithCancel(context.Background())
	var err error
	if p.own, err = newPool(ctx, url, p.attach(false)); err != nil {
		return nil, err
	}
	p.yours, err = newPool(ctx, url, p.attach(true))
	return p, err
}

// close ends the process. What is left of a dead one ends by itself.
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

func newPool(ctx context.Context, url string, attach attachFunc) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.AfterNetConnect = attach
	config.ConnConfig.RuntimeParams["application_name"] = processName
	return pgxpool.NewWithConfig(ctx, config)
}

// attach makes a wire of each new connection; the dead make none.
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

func (p *process) forget(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

// lend watches the connection of a transaction that a handler is handed, until it ends.
func (p *process) lend(conn *pgx.Conn) {
	if w, ok := conn.PgConn().Conn().(*wire); ok {
		w.watch()
	}
}

// statement counts the places of one statement, and returns what becomes of it.
func (p *process) statement(text string) fate {
	text = strings.Join(strings.Fields(text), " ")
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

// commits reports whether the last of some statements is a COMMIT.
func commits(text string) bool {
	return strings.EqualFold(text[strings.LastIndexByte(text, ' ')+1:], "commit")
}

const mostShown = 100 // octets of a statement in a message

var ours = regexp.MustCompile(`pawl_v1\.\w+`)

// shortened is a statement for people: of a call of ours, its function.
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

// pass is a place that is no statement. It reports whether the process is dead.
func (p *process) pass(place string) (dead bool) {
	p.mu.Lock()
	hit := p.hits("death " + place)
	p.mu.Unlock()
	if hit {
		p.die()
	}
	return p.dead()
}

func (p *process) dead() bool { return p.gone.Err() != nil }

// hits counts one place, and reports whether it is the one. The caller holds mu.
func (p *process) hits(place string) bool {
	p.passed++
	if p.passed != p.at {
		return false
	}
	p.hit = fmt.Sprintf("%s (place %d)", place, p.at)
	return true
}

// last returns the place at which the process died, or lost a reply; "" if it came to none. It does not do so later.
func (p *process) last() (place string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = 0
	return p.hit
}

// die cuts all connections.
func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	for w := range p.wires {
		_ = w.Conn.Close() // without a word, as the kernel does it
	}
	clear(p.wires)
}

// grace is how long handlers may take to notice the death of their process.
const grace = 500 * time.Millisecond

// live works until there is nothing left to do, or until the process is dead. A handler that has not returned by then is left behind.
func (p *process) live(ctx context.Context, work life) (contents, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.gone, cancel)()
	type outcome struct {
		answer contents
		err    error
	}
	done, idle := make(chan outcome, 1), make(chan struct{})
	go func() {
		answer, err := work(ctx)
		done <- outcome{answer, err}
	}()
	select {
	case o := <-done:
		return o.answer, o.err
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

// bury waits until the server has ended the sessions of a dead process, and with them their transactions and locks. Then it makes the dead
// look silent for longer than any lease, and than any pause before a probe, and has the sweep find them. It moves rows, not clocks.
func bury(ctx context.Context, eyes *pgxpool.Pool) error {
	for n := 1; n > 0; {
		err := eyes.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name = $1", processName).Scan(&n)
		if err != nil {
			return err
		}
		if n > 0 && !pace.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("the server still has %d connections of the dead process: %w", n, ctx.Err())
		}
	}
	for _, move := range []string{
		"update pawl.worker set seen_at = clock_timestamp() - lease * 2",
		"update pawl.command set lease_expires_at = clock_timestamp() - interval '1 minute' where lease_expires_at is not null",
		"update pawl.step_call set started_at = started_at - interval '2 days', not_after = not_after - interval '2 days' where ended_at is null",
	} {
		if _, err := eyes.Exec(ctx, move); err != nil {
			return err
		}
	}
	_, err := contract.JobSweep(ctx, eyes, []string{}, 0)
	return err
}
