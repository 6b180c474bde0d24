package standbytest

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// A failover is a pair of servers behind one address, like a proxy, a DNS name or a virtual IP.
type failover struct {
	*bed
	pair  *servers
	front *front
	again func() // repeats the calls of all doors
}

// Only the old primary can prove what was read on it. The new one lacks it, so a barrier there
// succeeds and proves nothing. Every door is asked for something that the failover loses, in every
// order of asking, cutting, promoting and dying. Each positive answer must be true on the new
// primary.
func TestAnswers_AreConfirmedWhereTheyWereRead(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(f *failover){
		"promoted, asked, then dead": func(f *failover) {
			f.front.to(f.pair.StandbyURL())
			f.pair.Promote()
			f.again()
			patience.Watch(holdFor, func() {})
			f.kill()
		},
		"asked, promoted, then dead": func(f *failover) {
			f.again()
			f.waitForProof()
			f.front.to(f.pair.StandbyURL())
			f.pair.Promote()
			patience.Watch(holdFor, func() {})
			f.kill()
		},
		"asked, dead, promoted; connections wait": func(f *failover) {
			f.again()
			f.waitForProof()
			let := f.front.hold()
			f.kill()
			f.pair.Promote()
			f.front.to(f.pair.StandbyURL())
			let()
		},
		"asked, dead, promoted; connections are refused": func(f *failover) {
			f.again()
			f.waitForProof()
			f.kill()
			f.pair.Promote()
			f.front.to(f.pair.StandbyURL())
		},
		"asked, dead, promoted; connections reach the standby": func(f *failover) {
			f.again()
			f.waitForProof()
			f.front.to(f.pair.StandbyURL())
			f.kill()
			patience.Watch(holdFor, func() {})
			f.pair.Promote()
		},
		"dead, promoted, asked": func(f *failover) {
			f.kill()
			f.pair.Promote()
			f.front.to(f.pair.StandbyURL())
			f.again()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pair(t)
			f := &failover{pair: p, front: newFront(t, p.URL())}
			f.bed = newBed(t, f.front.url)
			doors := f.doors()
			firsts, cancelFirsts := context.WithCancel(context.Background())
			defer cancelFirsts()
			ctx, cancel := context.WithCancel(context.Background())
			first, again := &answers{}, &answers{}
			t.Cleanup(func() { cancel(); again.all.Wait() })

			stop := f.unreplicated(firsts, p, doors, first)
			cancelFirsts() // from now on only the repeated calls write
			first.all.Wait()
			stop()
			f.again = func() {
				for _, d := range doors {
					again.ask(ctx, d.name, d.again)
				}
			}
			f.failedOver.Store(true)
			run(f)

			standby := poolOf(t, p.StandbyURL(), nil)
			untilTrue(t, standby, "not pg_is_in_recovery()")
			patience.Until(t, "those are answered who can be", func() bool { return again.has(remakes(doors)) })
			for _, d := range doors {
				// A suspect.
				kept := fmt.Sprintf("%s or exists (select from pawl.job as j where j.queue = 'inbox/%s')", d.row, d.name)
				if slices.Contains(again.given(), d.name) && !isTrue(t, standby, kept) {
					t.Errorf("%s was answered, and is not on the new primary", d.name)
				}
			}
		})
	}
}

// remakes returns the doors whose repeated call executes the lost effect again. The others ask
// about what only the first call could do.
func remakes(doors []door) (names []string) {
	for _, d := range doors {
		if d.name != "leased" && d.name != "step" && d.name != "release" && !strings.HasPrefix(d.name, "process") {
			names = append(names, d.name)
		}
	}
	return names
}

// waitForProof returns once the barriers of both pools wait for the standby.
func (f *failover) waitForProof() {
	f.pair.Until("select count(*) >= 2 from pg_stat_activity as a where a.wait_event = 'SyncRep' and a.query like '%\\_unreplicated%'")
}

// kill ends the old primary without further replication.
func (f *failover) kill() {
	if err := f.pair.primary.Stop(); err != nil {
		f.Error(err)
	}
}

// A front forwards each new connection to one server. Open connections keep theirs.
type front struct {
	url string

	mu     sync.Mutex
	target string        // path of a socket
	held   chan struct{} // closed when new connections are forwarded again; nil while they are
}

func newFront(t *testing.T, url string) *front {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	f := &front{url: fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", listener.Addr())}
	f.to(url)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.forward(conn)
		}
	}()
	return f
}

// to forwards new connections to the server of url.
func (f *front) to(url string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		panic(err) // the test's own URL
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
}

// hold makes new connections wait until let is called.
func (f *front) hold() (let func()) {
	held := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	}
}

func (f *front) forward(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held != nil {
		<-held
	}
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	server, err := net.Dial("unix", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
