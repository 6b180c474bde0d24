package lab

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// TestMain lets the test binary be a worker process of the lab.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == WorkerCommand {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Work(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A stage is a lab without a page, in which a test presses the buttons.
type stage struct {
	*testing.T
	l     *lab
	c     *camp
	fleet *fleet.Fleet
	key   string // of the order
}

func openStage(t *testing.T) *stage {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(Options{Workers: 2, Executable: executable, Note: func(string) {}})
	t.Cleanup(l.close)
	if err := l.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &stage{T: t, l: l}
}

// play sends an order to one worker of a way, stops the process at a moment, presses a button, and
// lets all go on. It returns what happened to the order, and its history.
//
// At most one worker handles the order at any time, except where the button lets two do so. The
// test decides the order of all steps, so a machine that stalls changes nothing.
func (s *stage) play(w way, button string, at moment) (outcome, string) {
	s.Helper()
	s.c = s.l.campOf(w.Name)
	s.l.mu.Lock()
	s.l.stands = []*camp{s.c}
	s.l.sent++
	s.key = orderKey(s.l.sent)
	s.l.mu.Unlock()
	config := workerConfig{Visibility: time.Second, Lease: time.Second, Concurrency: 1}
	if button == "duplicates" {
		config.Lease = time.Hour // the first worker has the order for as long as it stands still
	}
	stop := at
	if at == replying {
		stop = written
	}
	s.recruit(config, stop)
	defer s.dismiss()
	s.add(1)
	if button == "lose-acks" {
		s.loseAcks()
		return s.end()
	}
	s.l.send(s.Context(), s.c, s.key)
	s.until(fmt.Sprintf("the worker has come to %q", stop), func() bool { return s.said(1, string(stop)) > 0 })
	switch button {
	case "kill", "cut":
		s.press(button)
	case "freeze":
		s.press("freeze")
		s.add(2)
		s.until("the second worker has settled the order", func() bool { return s.said(2, ends...) > s.said(2, held) || !s.open() })
		s.press("wake")
	case "restart":
		s.restart(at)
	case "duplicates":
		s.press("duplicates")
		s.add(2)
		s.until("the second worker has dealt with both copies", func() bool {
			want := times
			if s.said(2, held) > 0 && s.said(2, effect) == 0 {
				want *= 4 // they come again every second, and a reaper runs meanwhile
			}
			return s.said(2, append(slices.Clone(ends), "duplicate_skipped")...) >= want
		})
	}
	return s.end()
}

// recruit prepares processes for the camp. The first one stops at a moment.
func (s *stage) recruit(config workerConfig, stop moment) {
	s.fleet = s.l.recruit(s.c, config)
	usual, armed := s.fleet.Config, stop == ""
	s.fleet.Config = func(number int) any { // the fleet locks its calls
		one := usual(number).(workerConfig)
		if !armed {
			armed, one.Faults = true, fmt.Sprintf("lab.%s=stop", stop)
		}
		return one
	}
}

func (s *stage) add(number int) {
	s.Helper()
	if _, err := s.fleet.Add(s.Context(), number); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) dismiss() {
	s.fleet.KillAll()
	for number, p := range s.c.proxies {
		p.OnCommit(nil)
		s.c.died(number + 1)
	}
}

func (s *stage) press(button string) {
	s.Helper()
	if err := s.l.apply(s.Context(), button, "1"); err != nil {
		s.Fatal(err)
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if last := s.l.presses[len(s.l.presses)-1]; last.failed != "" {
		s.Fatalf("%s: %s", button, last.failed)
	}
}

// restart crashes the server. At written, the worker goes on while the server is down. At replying,
// it goes on when the server has recovered.
func (s *stage) restart(at moment) {
	s.Helper()
	if at == replying {
		var once sync.Once
		s.c.proxies[0].OnCommit(func() (cut wireproxy.Cut) {
			once.Do(func() { cut = wireproxy.HoldReply })
			return cut
		})
		s.until("the row is committed", func() bool { s.wake(); return s.rows() == 1 })
		s.press("freeze")
		s.press("restart")
		return
	}
	s.press("restart")
	s.until("the crash has ended the worker's connections", func() bool { return s.c.proxies[0].Open() == 0 })
	thaw := s.c.proxies[0].Freeze()
	defer thaw()
	s.until("the worker has failed", func() bool { s.wake(); return s.said(1, ends...) > 0 })
}

// loseAcks sends the order while the queue loses acknowledgements, until it has lost one.
func (s *stage) loseAcks() {
	s.Helper()
	s.press("lose-acks")
	lose := func(until time.Time) {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		s.l.loseUntil = until
	}
	lose(time.Now().Add(time.Hour))
	s.l.send(s.Context(), s.c, s.key)
	s.until("an acknowledgement is lost", func() bool { return strings.Contains(s.history(), ackLost) })
	lose(time.Time{})
}

// end lets the first worker go on, waits until the order is settled, and counts its rows.
func (s *stage) end() (outcome, string) {
	s.Helper()
	s.until("the order is settled", func() bool {
		s.wake()
		s.c.mu.Lock()
		holds := s.c.heldLocked(s.key)
		s.c.mu.Unlock()
		return !holds && !s.open()
	})
	switch n := s.rows(); {
	case n == 0:
		return lost, s.history()
	case n > 1:
		return doubled, s.history()
	}
	return fine, s.history()
}

// wake wakes the first worker, also one that stops only now.
func (s *stage) wake() {
	if w := s.c.worker(1); w != nil {
		s.fleet.Wake(w)
	}
}

// open reports whether the queue or the database still has the order.
func (s *stage) open() bool {
	_, waiting, err := s.l.effects(s.Context(), s.c)
	if err != nil {
		return true
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.of(s.key).closed.IsZero() || waiting[s.key]
}

func (s *stage) rows() int {
	rows, _, err := s.l.effects(s.Context(), s.c)
	if err != nil {
		return -1
	}
	return rows[s.key]
}

// said counts the reports of these kinds that a worker made about the order.
func (s *stage) said(worker int, kinds ...string) (n int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.c.of(s.key).lines {
		if l.Worker == worker && slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(l.Text, sentences[kind]) }) {
			n++
		}
	}
	return n
}

func (s *stage) history() string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	var out strings.Builder
	for _, l := range s.c.of(s.key).lines {
		fmt.Fprintf(&out, "  %s worker %d: %s\n", l.At.Format("05.000"), l.Worker, l.Text)
	}
	return out.String()
}

func (s *stage) until(what string, ok func() bool) {
	s.Helper()
	patience.Until(tellingOf(s), what, ok)
}

// A telling test adds the history of the order to a failure.
type telling struct {
	*testing.T
	s *stage
}

func tellingOf(s *stage) telling { return telling{s.T, s} }

func (t telling) Fatalf(format string, args ...any) {
	t.T.Helper()
	t.T.Fatalf(format+"\n%s", append(args, t.s.history())...)
}
