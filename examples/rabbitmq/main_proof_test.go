//go:build proof

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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/pawltest"
)

// The program of the guide runs as a process, on a RabbitMQ that is killed meanwhile. Each order
// takes effect once, an unreadable message is kept as a dead letter, and a stop leaves no message
// in flight.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	const orders = 50
	// Without a unique key a second effect of an order shows.
	database := pawltest.URL(t, "create table orders (id text not null, cents bigint not null)")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	server, err := brokers.RabbitMQ(t.Context(), brokers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	url := "amqp://guest:guest@" + server.Addr() + "/"
	binary := filepath.Join(t.TempDir(), "rabbitmq")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database, "RABBITMQ_URL=" + url}
	prepare := exec.Command(binary, "setup")
	prepare.Env = env
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	// it is killed soon
	if err := brokers.AwaitQuorumQueue(t.Context(), server, "orders"); err != nil {
		t.Fatal(err)
	}
	send(t, url, "broken", "not JSON")
	for n := range orders / 2 {
		order(t, url, n)
		order(t, url, n)
	}

	var stderr bytes.Buffer
	program := exec.CommandContext(context.WithoutCancel(t.Context()), binary)
	program.Env, program.Stderr = env, &stderr
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() { _ = program.Process.Kill() })
	until(t, "the first half took effect", &stderr, ended, func() bool { return count(t, pool, "select count(*) from orders") == orders/2 })
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range orders {
		order(t, url, n) // the producer does not know which ones arrived
	}
	until(t, "all took effect", &stderr, ended, func() bool { return count(t, pool, "select count(distinct id) from orders") == orders })
	until(t, "the queue is empty", &stderr, ended, func() bool { return waiting(t, url) == 0 })

	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
	case <-time.After(time.Minute):
		t.Fatal("still running a minute after SIGTERM")
	}
	if all := count(t, pool, "select count(*) from orders"); all != orders {
		t.Errorf("%d orders took effect, want %d\n%s", all, orders, &stderr)
	}
	if letters := count(t, pool, "select count(*) from pawl_v1.dead_letters as d where d.queue = 'inbox/orders' and d.payload_text = 'not JSON'"); letters != 1 {
		t.Errorf("%d dead letters, want 1\n%s", letters, &stderr)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func order(t *testing.T, url string, n int) {
	t.Helper()
	send(t, url, fmt.Sprintf("order-%d", n), fmt.Sprintf(`{"id":"order-%d","cents":%d}`, n, 100+n))
}

// onChannel uses a new connection for each call, because the broker is killed between calls.
func onChannel(t *testing.T, url string, call func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = call(ch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, url, key, body string) {
	t.Helper()
	onChannel(t, url, func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		confirm, err := ch.PublishWithDeferredConfirm("", "orders", true, false, amqp.Publishing{MessageId: key, DeliveryMode: amqp.Persistent, Body: []byte(body)})
		if err != nil {
			return err
		}
		if !confirm.Wait() {
			return fmt.Errorf("%s was not confirmed", key)
		}
		return nil
	})
}

func waiting(t *testing.T, url string) (n int) {
	t.Helper()
	onChannel(t, url, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive("orders", true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n
}

func until(t *testing.T, what string, stderr *bytes.Buffer, ended chan error, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the program ended: %v\n%s", err, stderr)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not reached in a minute: %s", what)
		}
	}
}
