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
	"github.com/nats-io/nats.go"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/pawltest"
)

// The program of the guide runs as a process, on a NATS server that is killed meanwhile. Each order
// takes effect once, an unreadable message is kept as a dead letter, and a stop leaves no message
// in flight.
func TestNATS(t *testing.T) {
	t.Parallel()
	const orders = 50
	// Without a unique key a second effect of an order shows.
	database := pawltest.URL(t, "create table orders (id text not null, cents bigint not null)")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	server, err := brokers.NATS(t.Context(), brokers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	url := "nats://" + server.Addr()
	binary := filepath.Join(t.TempDir(), "nats")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database, "NATS_URL=" + url}
	prepare := exec.Command(binary, "setup")
	prepare.Env = env
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	js, err := connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(js.Conn().Close)
	send := func(key, body string) {
		t.Helper()
		m := nats.NewMsg("orders.placed")
		m.Header.Set("Idempotency-Key", key)
		m.Data = []byte(body)
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
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
	settled := func() bool {
		c, err := js.Consumer(t.Context(), "ORDERS", "billing")
		return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
	}
	until(t, "the first half is settled", &stderr, ended, settled)
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "connected again", &stderr, ended, js.Conn().IsConnected)
	for n := range orders {
		order(n) // the producer does not know which ones arrived
	}
	until(t, "all is settled", &stderr, ended, settled)

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
	if !settled() {
		t.Error("messages were left unsettled by a stop")
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
