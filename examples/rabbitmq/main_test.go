//go:build brokers

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

	"github.com/pawl-go/pawl/internal/brokers"
	"github.com/pawl-go/pawl/pawltest"
)

// The program of the guide, as a process, on a RabbitMQ that is killed in the middle: each order once, what cannot be read kept as a dead
// letter, and a stop that strands nothing.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	const orders = 50
	// No unique key: if an order took effect twice, it would show.
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
	send := func(key, body string) {
		t.Helper()
		onChannel(t, url, func(channel *amqp.Channel) error {
			if err := channel.Confirm(false); err != nil {
				return err
			}
			confirm, err := channel.PublishWithDeferredConfirmWithContext(t.Context(), "", "orders", true, false,
				amqp.Publishing{MessageId: key, Body: []byte(body), DeliveryMode: amqp.Persistent})
			if err != nil {
				return err
			}
			_, err = confirm.WaitContext(t.Context())
			return err
		})
	}
	order := func(n int) { send(fmt.Sprintf("order-%d", n), fmt.Sprintf(`{"id":"order-%d","cents":%d}`, n, 100+n)) }
	for n := range orders / 2 {
		order(n)
		order(n)
	}
	send("broken", "not JSON")

	var stderr bytes.Buffer
	program := exec.CommandContext(context.WithoutCancel(t.Context()), binary)
	program.Env, program.Stderr = env, &stderr
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() { _ = program.Process.Kill() })
	done := func(want int) func() bool { // all orders are there, and no message is ready
		return func() bool {
			var n, ready int
			onChannel(t, url, func(channel *amqp.Channel) error {
				state, err := channel.QueueDeclarePassive("orders", true, false, false, false, nil)
				ready = state.Messages
				return err
			})
			err := pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&n)
			return err == nil && n >= want && ready == 0
		}
	}
	until(t, "the first half is settled", &stderr, ended, done(orders/2))
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range orders {
		order(n) // the producer does not know what arrived
	}
	until(t, "all is settled", &stderr, ended, done(orders))

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
	var all, distinct, letters int
	err = pool.QueryRow(t.Context(), `select (select count(*) from orders), (select count(distinct id) from orders),
       (select count(*) from pawl_v1.dead_letters as d where d.queue = 'inbox/orders' and d.payload_text = 'not JSON')`).Scan(&all, &distinct, &letters)
	if err != nil || all != orders || distinct != orders || letters != 1 {
		t.Errorf("%d orders, %d different, %d dead letters, %v; want %d, %d, 1\n%s", all, distinct, letters, err, orders, orders, &stderr)
	}
	if !done(orders)() {
		t.Error("a stop left messages in the queue")
	}
}

// onChannel runs a call on a connection of its own.
func onChannel(t *testing.T, url string, call func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := call(channel); err != nil {
		t.Fatal(err)
	}
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
