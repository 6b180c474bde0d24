//go:build proof

package prompawl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/prompawl"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A panel of the Grafana dashboard, with the fields that the test reads.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// mayBeEmpty lists panels that are empty while nothing fails.
var mayBeEmpty = map[string]string{"Errors a second": "nothing fails here"}

// A real Prometheus loads the rules and scrapes a process with a consumer, a worker and gauges.
// Then every panel of the Grafana dashboard shows data, and the alert on dead letters fires.
func TestPrometheus_ShowsEveryPanel(t *testing.T) {
	rules, err := filepath.Abs("../../deploy/prometheus/pawl.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\nPrometheus must be installed, for instance with: apt-get install prometheus", err, out)
	}
	text, err := os.ReadFile("../../deploy/grafana/pawl.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, rules, workingProcess(t))
	shown := 0
	for _, one := range board.Panels {
		for _, target := range one.Targets {
			shown++
			expression := strings.ReplaceAll(target.Expr, "$__rate_interval", "30s")
			p.eventually(one.Title+": "+expression, func() (string, bool) {
				rows, err := p.query(expression)
				_, empty := mayBeEmpty[one.Title]
				return fmt.Sprint(rows, err), err == nil && (empty || rows > 0)
			})
		}
	}
	if shown < 15 {
		t.Errorf("only %d expressions", shown)
	}
	for alert, state := range map[string]string{"PawlDeadLetters": "pending", "PawlBlockedLanes": "pending"} {
		p.eventually("alert "+alert, func() (string, bool) {
			var answer struct {
				Data struct {
					Alerts []struct {
						Labels map[string]string
						State  string
					}
				}
			}
			err := p.get("/api/v1/alerts", &answer)
			for _, a := range answer.Data.Alerts {
				if a.Labels["alertname"] == alert && a.State == state {
					return "", true
				}
			}
			return fmt.Sprint(answer, err), false
		})
	}
	var loaded struct {
		Data struct {
			Groups []struct {
				Name  string
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := p.get("/api/v1/rules", &loaded); err != nil {
		t.Fatal(err)
	}
	sound := 0
	for _, g := range loaded.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
			sound++
		}
	}
	if sound < 10 {
		t.Errorf("only %d rules are loaded", sound)
	}
}

// workingProcess runs a consumer with a real SQS client, a worker and both collectors, and keeps
// sending them work of every kind. It returns the address that Prometheus scrapes.
func workingProcess(t *testing.T) string {
	pool := pawltest.DB(t)
	events := prompawl.NewEvents(observe.EventOptions{})
	hooks := events.Hooks()
	database, err := prompawl.NewDatabase(pool, observe.DatabaseOptions{Every: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(events, database)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(page.Close)

	queue, name := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), HTTPClient: sqstest.New(sqstest.Options{}),
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")}), "orders"
	if _, err := queue.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name}); err != nil {
		t.Fatal(err)
	}
	source, err := pawlsqs.Open(t.Context(), queue, name, pawlsqs.Config{Wait: time.Second, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := pawlsqs.OpenSender(t.Context(), queue, name, "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(pool, consumer.Config{Name: name, Source: source, Hooks: hooks,
		Handler: consumer.HandleTx(func(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	w, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "mail"}}, Hooks: hooks, Handlers: []job.Handler{job.Handle("k", func(_ context.Context, j job.Task[[]byte]) error {
		switch string(j.Payload) {
		case "retry":
			return errors.New("not yet")
		case "poison":
			return pawl.Final(errors.New("never"))
		}
		return nil
	})}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, c.Run)
	run(t, w.Run)
	run(t, func(ctx context.Context) error {
		for n := 0; ctx.Err() == nil; n++ {
			if err := workOnce(ctx, pool, sender, n); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
	return strings.TrimPrefix(page.URL, "http://")
}

// workOnce sends a message twice, enqueues jobs that succeed, fail and run later, and lets a worker
// die while it runs a job.
func workOnce(ctx context.Context, pool *pgxpool.Pool, sender *pawlsqs.Sender, n int) error {
	for range 2 {
		if err := sender.Send(ctx, pawlsqs.Message{Key: fmt.Sprint("order-", n), Payload: []byte("b")}); err != nil {
			return err
		}
	}
	for _, body := range []string{"well", "retry", "poison"} {
		r := job.Request{Queue: "mail", Kind: "k", Payload: []byte(body)}
		if body == "poison" {
			r.Lane = "l"
		}
		if _, err := job.Enqueue(ctx, pool, r); err != nil {
			return err
		}
	}
	_, err := pool.Exec(ctx, `with dead as (insert into pawl.worker (name, seen_at) values ('dead', clock_timestamp() - interval '1 hour') returning id)
insert into pawl.job (queue, kind, payload, status, claimed_by, fence, attempts) select 'mail', 'k', '', 'processing', d.id, 1, 1 from dead as d`)
	if err == nil && n == 0 {
		_, err = pool.Exec(ctx, `insert into pawl.job (queue, kind, payload, headers, available_at) values ('outbox/main', 'pawl.event', '', '{}', clock_timestamp() - interval '1 minute')`)
	}
	return err
}

// run runs a part of the process until the test ends.
func run(t *testing.T, part func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- part(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A server is a real Prometheus.
type server struct {
	*testing.T
	url string
	log *bytes.Buffer
}

func startPrometheus(t *testing.T, rules, target string) server {
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: pawl, static_configs: [{targets: [%q]}]}]
`, rules, target), 0o644); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	s := server{t, "http://" + address, &bytes.Buffer{}}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	s.eventually("it is ready", func() (string, bool) {
		answer, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return err.Error(), false
		}
		answer.Body.Close()
		return answer.Status, answer.StatusCode == http.StatusOK
	})
	return s
}

func (s server) get(path string, into any) error {
	answer, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(into)
}

// query returns the current number of series of an expression.
func (s server) query(expression string) (rows int, err error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	err = s.get("/api/v1/query?query="+url.QueryEscape(expression), &answer)
	if err == nil && answer.Status != "success" {
		err = errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			rows++
		}
	}
	return rows, err
}

func (s server) eventually(what string, ok func() (string, bool)) {
	s.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		said, is := ok()
		if is {
			return
		}
		if time.Now().After(deadline) {
			s.Errorf("not within 2 minutes: %s: %s", what, said)
			return
		}
	}
}
