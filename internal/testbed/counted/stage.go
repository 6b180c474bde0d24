package counted

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/pawltest"
)

// A stage is the environment of one run: a broker, a database, the worker processes and the
// observations.
type stage struct {
	testing.TB
	transport Transport
	queue     Queue
	proxy     *wireproxy.Proxy // in front of the broker; nil unless the run needs one
	front     string           // its address
	pool      *pgxpool.Pool
	database  string
	crew      *fleet.Fleet
	witness   *witness
	book      *book
	random    *rand.Rand // of the goroutine that plays
	putting   sync.Mutex // makes orders be sent in the order of their numbers
	verdict   *Verdict

	// assign changes the assignment of the worker with that number. Set it before start.
	assign func(a *assignment, number int)
}

// lanes is the default number of lanes.
const lanes = 40

var queues atomic.Int64

// newStage prepares a run. A failure here ends the test at once.
func newStage(t *testing.T, tr Transport, r Run, mutant string) *stage {
	t.Helper()
	s := &stage{TB: t, transport: tr, witness: newWitness(t), book: &book{lanes: lanes}, random: rand.New(rand.NewPCG(*seed, 1)),
		assign: func(*assignment, int) {},
		verdict: &Verdict{Transport: tr.Name, Run: r.Name, Mutant: mutant, Seed: *seed, Began: time.Now(), Faults: map[string]int{},
			Figures: map[string]float64{}}}
	if r.proxied {
		s.openProxy()
	}
	broker := tr.Start(t, Need{Alone: r.alone, Proxy: s.front})
	if s.proxy != nil {
		behind := broker.Addr()
		if b, ok := broker.(Fronted); ok {
			behind = b.Behind()
		}
		s.proxy.Redirect(behind)
	}
	s.queue = Queue{Broker: broker, Name: fmt.Sprintf("counted-%d-%d", os.Getpid(), queues.Add(1)), Partitions: 6}
	s.must(tr.Create(t.Context(), s.queue))
	s.database = pawltest.URL(t, tables)
	var err error
	s.pool, err = pgxpool.New(t.Context(), s.database)
	s.must(err)
	t.Cleanup(s.pool.Close)
	s.crew = fleet.New(os.Args[0], workerCommand, s.assignment, s.witness.hear)
	t.Cleanup(s.crew.KillAll)
	return s
}

func (s *stage) openProxy() {
	s.Helper()
	var err error
	s.proxy, s.front, err = wireproxy.Listen()
	s.must(err)
	s.Cleanup(s.proxy.Close)
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// assignment returns the assignment of the worker with that number.
func (s *stage) assignment(number int) any {
	a := assignment{Database: s.database, Seed: s.verdict.Seed, Spec: Spec{Addr: s.queue.Broker.Addr(), Name: s.queue.Name, Worker: number,
		Session: s.transport.Session, Options: s.transport.Options}}
	if ours[s.verdict.Mutant] {
		a.Mutant = s.verdict.Mutant
	} else {
		a.Spec.Mutant = s.verdict.Mutant
	}
	s.assign(&a, number)
	return a
}

// start starts n worker processes.
func (s *stage) start(n int) error {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	return s.crew.Start(ctx, n)
}

// count returns the number that a query selects.
func (s *stage) count(sql string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), 30*time.Second)
	defer cancel()
	return n, s.pool.QueryRow(ctx, sql, args...).Scan(&n)
}

func (s *stage) effects() (int, error) { return s.count("select count(*) from orders") }

// until waits until reached returns true, at most for limit.
func (s *stage) until(what string, limit time.Duration, reached func() (bool, error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		ok, err := reached()
		if ok {
			return nil
		}
		select {
		case err := <-s.crew.Failed():
			return err
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s (%w)", limit, what, err)
		}
	}
}

// patience is how long settle waits without progress before the rest counts as never settled.
func (s *stage) patience() time.Duration {
	if s.verdict.Mutant != "" {
		return 3*s.transport.Session + 8*time.Second
	}
	return 3*s.transport.Session + 30*time.Second
}

// settle waits until the broker and the database have nothing left, and stops the workers. Messages
// and jobs without progress are recorded as unsettled.
func (s *stage) settle() error {
	moved, last := time.Now(), [3]int{}
	for {
		now, err := s.left()
		if err == nil && now[0] == 0 && now[1] == 0 {
			break
		}
		select {
		case err := <-s.crew.Failed():
			return err
		default:
		}
		if err == nil && now != last {
			moved, last = time.Now(), now
		}
		if time.Since(moved) > s.patience() {
			if err != nil {
				return fmt.Errorf("asking what is left: %w", err)
			}
			s.verdict.Unsettled = now[0] + now[1]
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return s.crew.Drain(context.WithoutCancel(s.Context()))
}

// left counts messages at the broker, unfinished jobs in the database, and effects.
func (s *stage) left() (n [3]int, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	if n[0], err = s.transport.Left(ctx, s.queue); err != nil {
		return n, err
	}
	if n[1], err = s.count("select count(*) from pawl.job as j where j.status <> 'dead_letter'"); err != nil {
		return n, err
	}
	n[2], err = s.effects()
	return n, err
}
