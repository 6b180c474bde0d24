package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The program of the guide, as a process that is killed with bookings in hand and a request half done: each order is there once
// and booked once, whichever door it came through and however often, and who asks again gets the answer.
func TestService(t *testing.T) {
	t.Parallel()
	const sent, asked = 20, 5
	// No unique keys: if an order or a booking took effect twice, it would show.
	database := pawltest.URL(t, "create table orders (id text not null, cents bigint not null)",
		"create table booking (order_id text not null, cents bigint not null)")
	db := dial(t, database)
	server := sqstest.New(sqstest.Options{})
	queue, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	send := producer(t, queue.URL)
	service := build(t, "DATABASE_URL="+database, "QUEUE=orders", "LISTEN=127.0.0.1:0", "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL="+queue.URL, "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")

	// Nothing can be booked, and then nothing ordered, until the process is dead.
	p := service.start(t)
	bookings := hold(t, database, "booking")
	for n := range sent {
		m := pawlsqs.Message{Key: fmt.Sprintf("sent-%d", n), Payload: fmt.Appendf(nil, `{"id":"sent-%d","cents":%d}`, n, 100+n)}
		send(m, m, m)
	}
	answers := map[string]string{}
	for n := range asked {
		status, answer := ask(t.Context(), p.url, n)
		if status != http.StatusCreated {
			t.Fatalf("%d %s\n%s", status, answer, p.log)
		}
		answers[fmt.Sprint(n)] = answer
	}
	p.until(t, "the queue is empty", func() bool {
		s := server.Stats("orders")
		return s.Ready+s.InFlight == 0
	})
	orders := hold(t, database, "orders")
	unheard := make(chan int, 1)
	go func() {
		status, _ := ask(context.WithoutCancel(t.Context()), p.url, asked)
		unheard <- status
	}()
	p.until(t, "bookings and a request are in hand", func() bool {
		return one[int](t, db, "select count(distinct relation) from pg_locks where not granted and relation in ('orders'::regclass, 'booking'::regclass)") == 2
	})
	p.kill(t)
	if status := <-unheard; status != 0 {
		t.Fatalf("the request was answered %d", status)
	}
	bookings()
	orders()

	p = service.start(t)
	again := pawlsqs.Message{Key: "sent-0", Payload: []byte(`{"id":"sent-0","cents":100}`)}
	send(again, pawlsqs.Message{Key: "broken", Payload: []byte("not JSON")})
	for n := range asked + 1 {
		p.until(t, "the request is answered", func() bool { // the dead process may hold the key for a moment
			status, answer := ask(t.Context(), p.url, n)
			if first := answers[fmt.Sprint(n)]; first != "" && answer != first {
				t.Errorf("request %d: first %q, then %q", n, first, answer)
			}
			return status == http.StatusCreated
		})
	}
	p.until(t, "all is booked", func() bool {
		return one[int](t, db, "select count(*) from pawl.job where status <> 'dead_letter'") == 0 && server.Stats("orders").Ready+server.Stats("orders").InFlight == 0
	})
	p.stop(t, func() { send(again) }) // the running poll wakes up to it
	got := one[string](t, db, `select format('%s orders of %s ids, %s bookings of %s, %s differ, dead letters: %s',
       (select count(*) from orders), (select count(distinct id) from orders),
       (select count(*) from booking), (select count(distinct order_id) from booking),
       (select count(*) from orders as o full join booking as b on b.order_id = o.id and b.cents = o.cents where o.id is null or b.order_id is null),
       (select string_agg(d.payload_text, ', ') from pawl_v1.dead_letters as d))`)
	if want := fmt.Sprintf("%d orders of %[1]d ids, %[1]d bookings of %[1]d, 0 differ, dead letters: not JSON", sent+asked+1); got != want {
		t.Errorf("%s; want %s\n%s", got, want, p.log)
	}
}

// A part that cannot start ends the others, and the program says why.
func TestService_OnePartFails(t *testing.T) {
	t.Parallel()
	server := sqstest.New(sqstest.Options{})
	queue, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	producer(t, queue.URL)
	database := pawltest.URL(t)
	if _, err := dial(t, database).Exec(t.Context(), "drop schema pawl_v1 cascade; drop schema pawl cascade"); err != nil {
		t.Fatal(err)
	}
	service := build(t, "DATABASE_URL="+database, "QUEUE=orders", "LISTEN=127.0.0.1:0", "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL="+queue.URL, "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	p := service.start(t)
	if err := p.end(t); err == nil || !strings.Contains(p.log.String(), "pawl migrate up") || strings.Contains(p.log.String(), "context canceled") {
		t.Errorf("%v\n%s", err, p.log)
	}
}

// ask sends request n with its key; status 0 says that no answer came.
func ask(ctx context.Context, url string, n int) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(fmt.Sprintf(`{"id":"asked-%d","cents":%d}`, n, 500+n)))
	if err != nil {
		return 0, ""
	}
	r.Header.Set("Idempotency-Key", fmt.Sprintf("asked-%d", n))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// hold keeps every writer out of a table until the function it returns is called.
func hold(t *testing.T, database, table string) (release func()) {
	t.Helper()
	conn := dial(t, database)
	if _, err := conn.Exec(t.Context(), "begin; lock table "+pgx.Identifier{table}.Sanitize()+" in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(context.WithoutCancel(t.Context())) }
}

// producer makes the queue and returns what sends to it.
func producer(t *testing.T, endpoint string) func(...pawlsqs.Message) {
	t.Helper()
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if _, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("orders")}); err != nil {
		t.Fatal(err)
	}
	sender, err := pawlsqs.OpenSender(t.Context(), client, "orders", "")
	if err != nil {
		t.Fatal(err)
	}
	return func(ms ...pawlsqs.Message) {
		t.Helper()
		if err := sender.Send(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
	}
}

// A program is the service, built, and its environment.
type program struct {
	binary string
	env    []string
}

func build(t *testing.T, env ...string) program {
	t.Helper()
	p := program{filepath.Join(t.TempDir(), "service"), append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)}
	if out, err := exec.Command("go", "build", "-o", p.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return p
}

// A process is a run of the service.
type process struct {
	cmd   *exec.Cmd
	url   string
	log   *journal
	ended chan error
}

// start returns once the process has said where it serves.
func (p program) start(t *testing.T) process {
	t.Helper()
	r := process{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), p.binary), log: &journal{}, ended: make(chan error, 1)}
	r.cmd.Env = p.env
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	served := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(r.log, lines.Text())
			if _, url, found := strings.Cut(lines.Text(), "serving "); found {
				served <- url
			}
		}
		r.ended <- r.cmd.Wait()
	}()
	select {
	case r.url = <-served:
	case err := <-r.ended:
		t.Fatalf("the program ended: %v\n%s", err, r.log)
	case <-time.After(time.Minute):
		t.Fatalf("serves nothing after a minute\n%s", r.log)
	}
	return r
}

// A journal is what a process has said so far.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (p process) until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-p.ended:
			t.Fatalf("the program ended: %v\n%s", err, p.log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not reached in a minute: %s\n%s", what, p.log)
		}
	}
}

// end waits for the end of the process.
func (p process) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("still running after a minute\n%s", p.log)
		return nil
	}
}

func (p process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end(t)
}

// stop asks the process to stop, nudges it once, and expects an end without an error.
func (p process) stop(t *testing.T, nudge func()) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	nudge()
	if err := p.end(t); err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
}

func dial(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func one[T any](t *testing.T, conn *pgx.Conn, query string) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
