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
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/pawltest"
)

// The program of the guide runs as a process, on a Kafka that is killed meanwhile. Each order takes
// effect once, an unreadable record is kept as a dead letter, and a stop leaves no record
// uncommitted.
func TestKafka(t *testing.T) {
	t.Parallel()
	const orders = 50
	// Without a unique key a second effect of an order shows.
	database := pawltest.URL(t, "create table orders (id text not null, cents bigint not null)")
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	server, err := brokers.Kafka(t.Context(), brokers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if err := brokers.MakeKafkaTopic(t.Context(), server.Addr(), "orders", 3); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "kafka")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Addr()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	send := func(key, body string) {
		t.Helper()
		r := &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte(body), Headers: []kgo.RecordHeader{{Key: "Idempotency-Key", Value: []byte(key)}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
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
	program.Env = []string{"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database, "KAFKA_BOOTSTRAP_SERVERS=" + server.Addr()}
	program.Stderr = &stderr
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() { _ = program.Process.Kill() })
	admin := kadm.NewClient(client)
	settled := func() bool {
		ends, err := admin.ListEndOffsets(t.Context(), "orders")
		if err != nil || ends.Error() != nil {
			return false
		}
		commits, err := admin.FetchOffsets(t.Context(), "billing")
		all := err == nil
		ends.Each(func(end kadm.ListedOffset) {
			c, there := commits.Lookup(end.Topic, end.Partition)
			all = all && (end.Offset == 0 || there && c.At == end.Offset)
		})
		return all
	}
	until(t, "the first half is settled", ended, settled)
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range orders {
		order(n) // the producer does not know which ones arrived
	}
	until(t, "all is settled", ended, settled)

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
		t.Error("records were left uncommitted by a stop")
	}
}

func until(t *testing.T, what string, ended chan error, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the program ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not reached in two minutes: %s", what)
		}
	}
}
