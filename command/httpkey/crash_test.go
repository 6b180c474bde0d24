package httpkey_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
)

// The database connection is cut at COMMIT 500 times, before it is sent or before its reply. Each
// request has one effect, and its caller and every retry get the right answer.
func TestOnce_LostCommitReplies(t *testing.T) {
	t.Parallel()
	const cuts = 500
	direct := setup(t)
	proxy, through := wireproxy.Start(t, direct.url)
	b := setupOn(t, through)
	var sent atomic.Int64
	proxy.OnCommit(func() wireproxy.Cut {
		return []wireproxy.Cut{wireproxy.BeforeSend, wireproxy.Pass, wireproxy.BeforeReply, wireproxy.Pass}[sent.Add(1)%4]
	})
	s := b.once(place, httpkey.Options{AcquireTimeout: minute})
	// A replay shows that the handler did not run again.
	again := direct.once(place, httpkey.Options{})
	queue := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range queue {
				key := fmt.Sprint(n)
				first := s.post(key, key)
				for try := 0; first.status == http.StatusServiceUnavailable && try < 3; try++ {
					first = s.post(key, key)
				}
				if second := again.post(key, key); first.status != 201 || second.stored() != first.stored() || !second.replayed() {
					t.Errorf("%s: %v, then %v", key, first, second)
				}
			}
		})
	}
	n := 0
	for ; proxy.Cuts() < cuts; n++ {
		queue <- n
	}
	close(queue)
	all.Wait()
	direct.wantOrders(n)
	direct.want("select count(distinct body) from orders", n)
	t.Logf("%d requests, %d cuts at COMMIT, %d orders", n, proxy.Cuts(), n)
}

// childEnv holds a serving, as JSON, for a child process.
const childEnv = "PAWL_TEST_HTTPKEY"

// A serving says how a child process answers requests.
type serving struct {
	URL string
	// "once", "commit" (leased, rows in Commit), or "outside" (leased, another connection).
	Form       string
	Repeatable bool
	Faults     string
}

func (v serving) handler(pool *pgxpool.Pool) http.Handler {
	lease := httpkey.Lease{Repeatable: v.Repeatable}
	switch v.Form {
	case "commit":
		return httpkey.Leased(pool, tenant, lease, httpkey.Options{}, commit)
	case "outside":
		return httpkey.Leased(pool, tenant, lease, httpkey.Options{}, func(w http.ResponseWriter, r *http.Request, _ *httpkey.Attempt) error {
			_, err := pool.Exec(r.Context(), "insert into orders (body) values ('outside')")
			w.WriteHeader(http.StatusCreated)
			return err
		})
	}
	return httpkey.Once(pool, tenant, httpkey.Options{}, place)
}

// TestServerProcess is the server that other tests kill. It serves until its input ends.
func TestServerProcess(t *testing.T) {
	var v serving
	if text := os.Getenv(childEnv); text == "" {
		return
	} else if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	if err := fault.Arm(v.Faults); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), v.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(v.handler(pool))
	fmt.Printf("serving %s\n", s.URL)
	bufio.NewScanner(os.Stdin).Scan()
}

// process starts such a server and returns its client.
func (b *bed) process(v serving) (s *site, killed func()) {
	b.Helper()
	v.URL = b.url
	text, err := json.Marshal(v)
	b.must(err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	_, err = cmd.StdinPipe()
	b.must(err)
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	ended := make(chan struct{})
	b.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "serving ") {
	}
	address := strings.TrimPrefix(lines.Text(), "serving ")
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return &site{bed: b, Server: &httptest.Server{URL: address}}, func() {
		b.Helper()
		patience.Receive(b, "the server has died", ended)
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
			b.Fatalf("the server ended by %v", cmd.ProcessState)
		}
	}
}

// The server is killed at each named point. A retry finds one effect and the right answer. On a
// leased route that is not repeatable, it finds an unknown outcome, and nothing runs twice.
func TestServer_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	const unknown, replay, again = "unknown", "replay", "again"
	for _, c := range []struct {
		form, point string
		repeatable  bool
		then        string
		orders      int
	}{
		{"once", "command.claim.after", false, again, 1},
		{"once", "command.handle.before", false, again, 1},
		{"once", "command.handle.after", false, again, 1},
		{"once", "command.commit.before", false, again, 1},
		{"once", "command.commit.after", false, replay, 1},
		{"once", "httpkey.send.before", false, replay, 1},
		{"commit", "command.begin.after", false, unknown, 0},
		{"commit", "command.work.before", false, unknown, 0},
		{"commit", "command.hold.before", false, unknown, 0},
		{"commit", "command.commit.before", false, unknown, 0},
		{"commit", "command.commit.after", false, replay, 1},
		{"commit", "command.work.after", false, replay, 1},
		{"commit", "httpkey.send.before", false, replay, 1},
		{"commit", "command.begin.after", true, again, 1},
		{"commit", "command.work.before", true, again, 1},
		{"commit", "command.hold.before", true, again, 1},
		{"commit", "command.commit.before", true, again, 1},
		{"commit", "command.commit.after", true, replay, 1},
		{"commit", "command.work.after", true, replay, 1},
		{"outside", "command.work.before", false, unknown, 0},
		{"outside", "command.succeed.before", false, unknown, 1},
		{"outside", "command.succeed.after", false, replay, 1},
		{"outside", "command.work.after", false, replay, 1},
		{"outside", "httpkey.send.before", false, replay, 1},
	} {
		name := c.form + " " + c.point
		if c.repeatable {
			name += ", repeatable"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			v := serving{Form: c.form, Repeatable: c.repeatable, Faults: c.point + "=kill"}
			doomed, killed := b.process(v)
			if g, err := doomed.try(t.Context(), "k", "a"); err == nil {
				t.Errorf("an answer: %v", g)
			}
			killed()
			b.until("select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'", 0)
			s := b.serve(v.handler(b.pool))
			if c.form != "once" && c.then != replay {
				// Until the lease expires.
				b.wantProblem(s.post("k", "a"), 409, "in-progress", false)
				b.exec(expire)
			}
			for n := range 2 {
				g := s.post("k", "a")
				switch {
				case c.then == unknown:
					b.wantProblem(g, 409, "outcome-unknown", false)
				case g.status != 201 || g.replayed() != (c.then == replay || n == 1):
					t.Errorf("%v", g)
				}
			}
			b.wantOrders(c.orders)
			if c.then == unknown {
				b.wantLedger("unknown 1")
			}
		})
	}
}
