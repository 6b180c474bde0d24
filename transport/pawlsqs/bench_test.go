package pawlsqs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// BenchmarkFIFO measures a consumer on a FIFO queue, with one group and with twenty. Run it with
// -benchtime 2000x for 2,000 messages.
func BenchmarkFIFO(b *testing.B) {
	for _, groups := range []int{1, 20} {
		b.Run(fmt.Sprint("groups ", groups), func(b *testing.B) { throughGroups(b, groups) })
	}
}

func throughGroups(b *testing.B, groups int) {
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	l, err := sqstest.New(sqstest.Options{}).Start()
	must(err)
	defer l.Close()
	client := newClient(nil, l.URL)
	createQueue(b, client, fifoQueue)
	sender, err := pawlsqs.OpenSender(b.Context(), client, fifoQueue, "")
	must(err)
	messages := make([]pawlsqs.Message, b.N)
	for n := range messages {
		messages[n] = pawlsqs.Message{Key: fmt.Sprint(n), Group: fmt.Sprint(n % groups), Payload: []byte("body")}
	}
	must(sender.Send(b.Context(), messages...))
	source, err := pawlsqs.Open(b.Context(), client, fifoQueue, pawlsqs.Config{Wait: time.Second})
	must(err)
	config, err := pgxpool.ParseConfig(pawltest.URL(b, "create table effect (key text not null)"))
	must(err)
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	must(err)
	defer pool.Close()

	left := make(chan struct{}, b.N)
	f, err := consumer.New(pool, consumer.Config{Name: "orders", Source: source,
		Handler: consumer.HandleTx(apply),
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if e.Kind == pawl.EventSucceeded {
				left <- struct{}{}
			}
		}}})
	must(err)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- f.Run(ctx) }()
	for range b.N {
		<-left
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.StopTimer()
	stop()
	must(<-ended)
}
