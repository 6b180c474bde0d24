//go:build proof

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
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
	"github.com/pawl-go/pawl/transport/webhook"
)

// A world holds everything that the service communicates with.
type world struct {
	*testing.T
	db       *pgx.Conn
	database string
	provider *pawltest.Provider
	queues   *sqstest.Server
	client   *awssqs.Client
	send     func(...pawlsqs.Message)
	url      string // of the service, the same in every process
	env      []string
	told     string  // URL of the queue of events
	events   []event // published so far
}

// mostLies is how often the provider misbehaves for one customer. After more failures the job's
// next retry would be later than the test waits.
const mostLies = 4

// newWorld starts a database, queues and a provider. With a seed the provider misbehaves in every
// third request, up to mostLies times for a customer.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	database := pawltest.URL(t, string(schema))
	w := &world{T: t, database: database, queues: sqstest.New(sqstest.Options{})}
	if w.db, err = pgx.Connect(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close(context.Background()) })
	random, told := rand.New(rand.NewPCG(seed, 1)), map[string]int{}
	w.provider = pawltest.NewProvider(t, time.Hour, func(_ int, r *http.Request) pawltest.Lie {
		var o Order
		_ = json.NewDecoder(r.Body).Decode(&o)
		lies, honest := []pawltest.Lie{pawltest.CutBefore, pawltest.FailBefore, pawltest.Conflict}, pawltest.Decline
		if !declines(o.Customer) {
			lies, honest = append(lies, pawltest.CutAfter, pawltest.FailAfter, pawltest.TimeOutAfter), ""
		}
		if seed != 0 && random.IntN(3) == 0 && told[o.Customer] < mostLies {
			told[o.Customer]++
			return lies[random.IntN(len(lies))]
		}
		return honest
	})
	queue, err := w.queues.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	w.client = awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &queue.URL, Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	for _, name := range []string{"orders", "events"} {
		made, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(name)})
		if err != nil {
			t.Fatal(err)
		}
		w.told = *made.QueueUrl // of the last one
	}
	sender, err := pawlsqs.OpenSender(t.Context(), w.client, "orders", "")
	if err != nil {
		t.Fatal(err)
	}
	w.send = func(ms ...pawlsqs.Message) {
		if err := sender.Send(t.Context(), ms...); err != nil {
			t.Error(err)
		}
	}
	address := freeAddress(t)
	w.url = "http://" + address
	w.env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database, "LISTEN=" + address, "ORDERS_QUEUE=orders", "EVENTS_QUEUE=events",
		"PAWL_WEBHOOK_SECRET=" + secret, "PAYMENTS_URL=" + w.provider.URL + "/charges", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + queue.URL, "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any"}
	return w
}

// freeAddress returns an address for consecutive processes. It is below the ports that the system
// assigns to others meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// client times out if a process neither answers nor dies.
var client = &http.Client{Timeout: 30 * time.Second}

// number is the n of a customer "sqs-n" or "http-n".
func number(customer string) (n int) {
	_, digits, _ := strings.Cut(customer, "-")
	n, _ = strconv.Atoi(digits)
	return n
}

// declines reports whether the provider declines the customer's card.
func declines(customer string) bool { return number(customer)%6 == 5 }

// refundable returns the charges to be refunded.
func (w *world) refundable() (charges []string) {
	for _, c := range w.provider.Charges() {
		var o Order
		if json.Unmarshal([]byte(c.Body), &o) == nil && number(o.Customer)%4 == 0 {
			charges = append(charges, c.ID)
		}
	}
	return charges
}

// refund announces each refund as soon as its charge exists, as two events, repeatedly until stop
// is closed.
func (w *world) refund(stop <-chan struct{}) {
	for {
		for _, charge := range w.refundable() {
			for _, event := range []string{"a", "b"} {
				body := fmt.Appendf(nil, `{"id":"evt_%s_%s","type":"charge.refunded","data":{"object":{"id":%[1]q}}}`, charge, event)
				answer, err := client.Do(pawltest.SignWebhook(w.T, webhook.Stripe(webhook.Secret{Value: secret}), w.url+"/webhooks/payments", "", body))
				if err == nil {
					_ = answer.Body.Close()
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// order makes a request for an order under a key.
func (w *world) order(key, body string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, w.url+"/orders", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	return r
}

// ask orders over HTTP, and retries with the same key until it has a response.
func (w *world) ask(n int) (answer string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := client.Do(w.order(fmt.Sprint("k-", n), fmt.Sprintf(`{"customer":"http-%d","cents":%d}`, n, 100+n)))
		if err != nil {
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil && response.StatusCode == http.StatusCreated {
			return string(text)
		}
	}
	w.Errorf("order %d has no answer after two minutes", n)
	return ""
}

func (w *world) get(path string) string {
	response, err := client.Get(w.url + path)
	if err != nil {
		w.Error(err)
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

// status is the status of a page's response, or 0 without one.
func (w *world) status(path string) int {
	response, err := client.Get(w.url + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// An event is a published message.
type event struct{ id, kind, subject, customer string }

// published empties the queue of events and returns all events so far. Messages in lost responses
// come again.
func (w *world) published() []event {
	w.Helper()
	for {
		got, err := w.client.ReceiveMessage(w.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &w.told, MaxNumberOfMessages: 10,
			MessageAttributeNames: []string{"All"}, VisibilityTimeout: 2})
		if err != nil {
			w.Fatal(err)
		}
		for _, m := range got.Messages {
			text := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
			var o Order
			if err := json.Unmarshal([]byte(aws.ToString(m.Body)), &o); err != nil {
				w.Fatal(err)
			}
			w.events = append(w.events, event{text("Idempotency-Key"), text("ce-type"), text("ce-subject"), o.Customer})
			if _, err := w.client.DeleteMessage(w.Context(), &awssqs.DeleteMessageInput{QueueUrl: &w.told, ReceiptHandle: m.ReceiptHandle}); err != nil {
				w.Fatal(err)
			}
		}
		if s := w.queues.Stats("events"); s.Ready+s.InFlight == 0 {
			return w.events
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) exec(statement string) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), statement); err != nil {
		w.Fatal(err)
	}
}

func (w *world) count(query string) func() int {
	return func() int { return one[int](w, query) }
}

func one[T any](w *world, query string) (value T) {
	w.Helper()
	if err := w.db.QueryRow(w.Context(), query).Scan(&value); err != nil {
		w.Fatal(err)
	}
	return value
}

// hold locks a table against writers until the returned function is called.
func (w *world) hold(table string) (release func()) {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), w.database)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := conn.Exec(w.Context(), "begin; lock table "+pgx.Identifier{table}.Sanitize()+" in exclusive mode"); err != nil {
		w.Fatal(err)
	}
	return func() { _ = conn.Close(context.Background()) }
}

// A process is a run of the service.
type process struct {
	*world
	cmd   *exec.Cmd
	log   *journal
	ended chan error
}

// start starts the service. faults names the point at which it dies.
func (w *world) start(faults string, env ...string) *process {
	w.Helper()
	p := &process{world: w, cmd: exec.Command(os.Args[0]), log: &journal{}, ended: make(chan error, 1)}
	p.cmd.Env = append(append([]string{"SERVICE_FAULTS=" + faults}, w.env...), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

func (p *process) untilReady() {
	p.Helper()
	p.until("it is ready", func() int { return p.status("/readyz") }, http.StatusOK)
}

func (p *process) until(what string, got func() int, want int) {
	p.Helper()
	for deadline := time.Now().Add(2 * time.Minute); got() != want; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.Fatalf("the service ended: %v\n%s", err, p.log)
		default:
		}
		if time.Now().After(deadline) {
			p.Fatalf("not reached in two minutes: %s: %d, want %d\n%s", what, got(), want, p.log)
		}
	}
}

// endsWithin reports whether the process ends within d.
func (p *process) endsWithin(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(d):
		return false
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.end()
}

// end waits for the end of the process.
func (p *process) end() error {
	p.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		p.Fatalf("still running after a minute\n%s", p.log)
		return nil
	}
}

// terminate sends SIGTERM.
func (p *process) terminate() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

// stop sends SIGTERM and waits for exit 0.
func (p *process) stop() {
	p.Helper()
	p.terminate()
	p.stops()
}

// stops waits for exit 0. It sends messages to wake the running poll, which would otherwise take
// its 20 s.
func (p *process) stops() {
	p.Helper()
	for range 60 {
		p.send(pawlsqs.Message{Key: "m-0", Payload: []byte(`{"customer":"sqs-0","cents":100}`)})
		select {
		case err := <-p.ended:
			if err != nil {
				p.Errorf("%v\n%s", err, p.log)
			}
			return
		case <-time.After(time.Second):
		}
	}
	p.Fatalf("still running after a minute\n%s", p.log)
}

// A journal is the output of a process.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns its end.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.text.String()
	return text[max(0, len(text)-8000):]
}
