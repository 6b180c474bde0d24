//go:build proof

package webhook_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

var (
	hookDeliveries = flag.Int("hook.deliveries", 600, "deliveries of each soak; the long one has 100000")
	hookKills      = flag.Int("hook.kills", 6, "SIGKILLs of each soak; the long one has 50")
	hookSeed       = flag.Uint64("hook.seed", rand.Uint64(), "decides order and kills")
)

const (
	copies  = 3  // of each delivery
	workers = 48 // concurrent senders
	// mostAsked is how many acknowledged deliveries are checked after each kill.
	mostAsked = 1000
)

// Signed deliveries are sent over HTTP, three copies of each in any order, to a receiver process
// that is killed repeatedly. Each takes effect once. A delivery answered 200 is in the database.
func TestSoak(t *testing.T) {
	for _, mode := range []string{"inline", "store"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSoak(t, mode)
			s.play()
			s.judge()
		})
	}
}

// A soak is a database, an address and the successive receivers behind it.
type soak struct {
	*testing.T
	plan     assignment
	pool     *pgxpool.Pool
	listener *net.TCPListener
	scheme   webhook.Scheme
	client   *http.Client
	random   *rand.Rand

	requests, refused atomic.Int64 // answered 503, or not at all
	killed            atomic.Int64 // receivers that died by SIGKILL
	mu                sync.Mutex
	taken             []string // keys, in the order of their first 200
	known             map[string]bool
}

// receiverEnv is the environment variable with a receiver process's assignment, as JSON.
const receiverEnv = "PAWL_TEST_RECEIVER"

// An assignment configures a receiver process. Its socket is file descriptor 3.
type assignment struct {
	URL    string // of the database
	Mode   string
	Faults string // where the process kills itself
}

// points are the crash points, by mode; "" is any moment.
var points = map[string][]string{
	"inline": {"", "consumer.claim.after", "consumer.handle.before", "consumer.handle.after", "consumer.commit.before", "consumer.commit.after", "consumer.ack.before"},
	"store":  {"", "consumer.claim.after", "consumer.ack.before", "job.hold.before", "job.handle.before", "job.commit.before", "job.commit.after"},
}

func newSoak(t *testing.T, mode string) *soak {
	t.Helper()
	t.Logf("seed %d", *hookSeed)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &soak{T: t, plan: assignment{URL: pawltest.URL(t, effects), Mode: mode}, listener: listener, known: map[string]bool{},
		scheme: soakScheme(), random: rand.New(rand.NewPCG(*hookSeed, 1)),
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: workers}}}
	if s.pool, err = pgxpool.New(t.Context(), s.plan.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	return s
}

func soakScheme() webhook.Scheme { return webhook.StandardWebhooks(secrets(whsec)...) }

// play sends all copies and kills receivers meanwhile.
func (s *soak) play() {
	s.Helper()
	order := make([]int, 0, *hookDeliveries*copies)
	for n := range *hookDeliveries {
		for range copies {
			order = append(order, n)
		}
	}
	s.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var sent atomic.Int64
	var senders sync.WaitGroup
	for w := range workers {
		senders.Go(func() {
			for i := w; i < len(order) && s.Context().Err() == nil; i += workers {
				s.send(order[i])
				sent.Add(1)
			}
		})
	}
	receiver := s.receiver("")
	for kill := range *hookKills {
		from := int64(len(order)) * int64(kill) / int64(*hookKills)
		for s.until("senders get on", func() bool { return sent.Load() >= from || receiver.over() }); sent.Load() < from; {
			receiver = s.receiver("") // it died early
			s.until("senders get on", func() bool { return sent.Load() >= from || receiver.over() })
		}
		receiver.kill(time.Duration(s.random.IntN(50)) * time.Millisecond)
		s.wantTaken()
		fault := ""
		if point := points[s.plan.Mode][s.random.IntN(len(points[s.plan.Mode]))]; point != "" {
			fault = fmt.Sprintf("%s=kill@%d", point, s.random.IntN(40))
		}
		receiver = s.receiver(fault)
	}
	done := make(chan struct{})
	go func() { senders.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-receiver.ended: // by its fault
			receiver = s.receiver("")
		}
	}
	s.until("all stored deliveries are done", func() bool {
		if receiver.over() {
			receiver = s.receiver("")
		}
		var left int
		if err := s.pool.QueryRow(s.Context(), "select count(*) from pawl.job").Scan(&left); err != nil {
			s.Fatal(err)
		}
		return left == 0
	})
	receiver.terminate()
}

// send sends one copy until it is answered 200. It signs each attempt.
func (s *soak) send(n int) {
	key := fmt.Sprintf("msg_%d", n)
	body := fmt.Sprintf(`{"id":%q,"n":%d}`, key, n)
	for s.Context().Err() == nil {
		h, err := s.scheme.Sign(key, time.Now(), []byte(body))
		if err != nil {
			s.Error(err)
			return
		}
		request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.listener.Addr().String(), strings.NewReader(body))
		if err != nil {
			s.Error(err)
			return
		}
		request.Header = h
		s.requests.Add(1)
		response, err := s.client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				s.took(key)
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable {
				s.Errorf("%s was answered %s", key, response.Status)
				return
			}
		}
		s.refused.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *soak) took(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known[key] {
		s.known[key] = true
		s.taken = append(s.taken, key)
	}
}

// wantTaken checks, while no receiver runs, the last deliveries that were answered 200.
func (s *soak) wantTaken() {
	s.Helper()
	s.mu.Lock()
	last := s.taken[max(0, len(s.taken)-mostAsked):]
	s.mu.Unlock()
	lost, err := inbox.Missing(s.Context(), s.pool, "soak", last)
	if err != nil || len(lost) > 0 {
		s.Errorf("answered 200 and not in the database: %v, %v", lost, err)
	}
}

func (s *soak) judge() {
	s.Helper()
	s.wantTaken()
	var all, distinct, letters int
	err := s.pool.QueryRow(s.Context(), `select count(*), count(distinct e.key), (select count(*) from pawl_v1.dead_letters) from effect as e`).Scan(&all, &distinct, &letters)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("counted: webhooks, %s: %d deliveries, %d copies each, %d requests (%d not answered 200), %d SIGKILLs: %d effects, %d doubled, %d lost", s.plan.Mode,
		*hookDeliveries, copies, s.requests.Load(), s.refused.Load(), s.killed.Load(), all, all-distinct, *hookDeliveries-distinct)
	if s.killed.Load() < int64(*hookKills) {
		s.Errorf("only %d receivers were killed", s.killed.Load())
	}
	if all != *hookDeliveries || distinct != *hookDeliveries || letters != 0 || len(s.taken) != *hookDeliveries {
		s.Errorf("%d effects, %d different, %d answered 200, %d dead letters; want %d of each and no letters", all, distinct, len(s.taken), letters, *hookDeliveries)
	}
}

func (s *soak) until(what string, reached func() bool) {
	s.Helper()
	patience := 2*time.Minute + time.Duration(*hookDeliveries)*10*time.Millisecond
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not reached in %s: %s", patience, what)
		}
	}
}

// A process is one receiver process.
type process struct {
	*soak
	cmd   *exec.Cmd
	ended chan struct{}
}

// receiver starts a receiver on the socket and waits until it has started.
func (s *soak) receiver(faults string) *process {
	s.Helper()
	socket, err := s.listener.File()
	if err != nil {
		s.Fatal(err)
	}
	defer socket.Close()
	plan := s.plan
	plan.Faults = faults
	text, err := json.Marshal(plan)
	if err != nil {
		s.Fatal(err)
	}
	p := &process{soak: s, cmd: exec.CommandContext(s.Context(), os.Args[0], "-test.run=^TestReceiverProcess$", "-test.timeout=0"), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), receiverEnv+"="+string(text))
	p.cmd.ExtraFiles = []*os.File{socket}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	begun := lines.Scan() && lines.Text() == "begun"
	go func() {
		for lines.Scan() {
		}
		var exit *exec.ExitError
		if errors.As(p.cmd.Wait(), &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			s.killed.Add(1)
		}
		close(p.ended)
	}()
	if !begun {
		s.Fatalf("a receiver did not begin: %q", lines.Text())
	}
	return p
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill kills the receiver after a delay, unless it has ended.
func (p *process) kill(after time.Duration) {
	select {
	case <-p.ended:
	case <-time.After(after):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// terminate ends the receiver with SIGTERM.
func (p *process) terminate() {
	p.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.Errorf("the last receiver ended with %d", code)
	}
}

// TestReceiverProcess is the main function of the receiver processes. It ends at SIGTERM.
func TestReceiverProcess(t *testing.T) {
	var a assignment
	if text := os.Getenv(receiverEnv); text == "" {
		return // not started by a soak
	} else if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := a.serve(ctx); err != nil {
		t.Fatal(err)
	}
}

func (a assignment) serve(ctx context.Context) error {
	if a.Faults != "" {
		if err := fault.Arm(a.Faults); err != nil {
			return err
		}
	}
	config, err := pgxpool.ParseConfig(a.URL)
	if err != nil {
		return err
	}
	config.MaxConns = 14
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	hooks := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		if e.Kind == pawl.EventError || e.Kind == pawl.EventWebhookRefused || e.Kind == pawl.EventMismatch {
			fmt.Fprintln(os.Stderr, e.Kind, e.Op, e.Key, e.Err)
		}
	}}
	v, err := webhook.New(webhook.Config{Scheme: soakScheme(), Hooks: hooks})
	if err != nil {
		return err
	}
	receiver, err := webhook.NewReceiver(v, webhook.ReceiverConfig{Hooks: hooks})
	if err != nil {
		return err
	}
	cfg := consumer.Config{Name: "soak", Source: receiver, Concurrency: 8, RetryConcurrency: 2, Hooks: hooks}
	policy := consumer.TxPolicy{Policy: consumer.Policy{Lease: 2 * time.Second, Backoff: job.Backoff{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond}}}
	if a.Mode == "store" {
		policy.Mode = consumer.StoreFirst
	}
	cfg.Handler = consumer.HandleTx(soakHandler).With(policy)
	f, err := consumer.New(pool, cfg)
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: receiver, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println("begun")
	// Runs until SIGTERM. Running deliveries are answered then.
	if err := f.Run(ctx); err != nil {
		return err
	}
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// soakHandler fails the first attempt of every fiftieth delivery, which is then stored.
func soakHandler(ctx context.Context, tx pgx.Tx, d consumer.Message[[]byte]) error {
	if err := handle(ctx, tx, d); err != nil {
		return err
	}
	// A stored delivery has no handle, and its attempt is counted.
	if strings.HasSuffix(d.Key, "49") && (d.Handle != nil || d.Receives == 1) {
		return errors.New("not the first time")
	}
	return nil
}
