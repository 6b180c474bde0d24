package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The program of the guide runs as a process, on a queue over HTTP. Each order takes effect once,
// an unreadable message is kept as a dead letter, and a stop leaves no message in flight.
func TestConsume(t *testing.T) {
	t.Parallel()
	const orders = 50
	// Without a unique key a second effect of an order shows.
	database := pawltest.URL(t, "create table orders (id text not null, cents bigint not null)")
	pool := connect(t, database)
	server := sqstest.New(sqstest.Options{})
	listener, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	send := producer(t, listener.URL)
	for n := range orders {
		m := pawlsqs.Message{Key: fmt.Sprintf("order-%d", n), Payload: fmt.Appendf(nil, `{"id":"order-%d","cents":%d}`, n, 100+n)}
		send(m, m, m)
	}
	send(pawlsqs.Message{Key: "broken", Payload: []byte("not JSON")})

	consumer := start(t, "DATABASE_URL="+database, "QUEUE=orders", "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL="+listener.URL, "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any")
	until(t, "the queue is empty", consumer, func() bool {
		s := server.Stats("orders")
		return s.Ready+s.InFlight == 0
	})

	// The running poll receives messages sent after the stop, and must release them.
	if err := consumer.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	consumer.mustEnd(t, func() { send(pawlsqs.Message{Key: "late", Payload: []byte(`{"id":"late","cents":1}`)}) })
	var all, distinct, letters int
	err = pool.QueryRow(t.Context(), `select (select count(*) from orders where id <> 'late'),
       (select count(distinct id) from orders where id <> 'late'),
       (select count(*) from pawl_v1.dead_letters as d where d.queue = 'inbox/orders' and d.payload_text = 'not JSON')`).
		Scan(&all, &distinct, &letters)
	if err != nil || all != orders || distinct != orders || letters != 1 {
		t.Errorf("%d orders, %d different, %d dead letters, %v; want %d, %d, 1\n%s", all, distinct, letters, err, orders, orders, consumer.stderr)
	}
	if s := server.Stats("orders"); s.InFlight != 0 {
		t.Errorf("%d messages left in flight", s.InFlight)
	}
}

// producer creates the queue and returns a function that sends to it.
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

type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	ended  chan error
}

// start builds and runs the program.
func start(t *testing.T, env ...string) process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "consume")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	p := process{exec.CommandContext(context.WithoutCancel(t.Context()), binary), &bytes.Buffer{}, make(chan error, 1)}
	p.cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// mustEnd waits until the program exits with 0, and calls nudge meanwhile.
func (p process) mustEnd(t *testing.T, nudge func()) {
	t.Helper()
	patience.Until(t, "it ends after SIGTERM", func() bool {
		select {
		case err := <-p.ended:
			if err != nil {
				t.Fatalf("%v\n%s", err, p.stderr)
			}
			return true
		default:
			nudge()
			return false
		}
	})
}

func until(t *testing.T, what string, p process, reached func() bool) {
	t.Helper()
	patience.Until(t, what, func() bool {
		select {
		case err := <-p.ended:
			t.Fatalf("the program ended: %v\n%s", err, p.stderr)
		default:
		}
		return reached()
	})
}

func connect(t *testing.T, database string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
