package incident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/step"
)

// environment is the variable that passes a deployment, as JSON, to a worker process.
const environment = "PAWL_TEST_DEPLOYMENT"

// Main must be called first in the TestMain of a package. In a process that a [Morning] started, it
// runs the worker until the process is killed.
func Main() {
	if text := os.Getenv(environment); text != "" {
		fmt.Fprintln(os.Stderr, workAsChild(text))
		os.Exit(1)
	}
}

// A deployment is a production-like worker. It charges in the lane of an account, pays by calling a
// provider, and mails.
type deployment struct {
	URL, Provider string
	Name          string
	Lease         time.Duration
	Dies          bool // it kills itself in the middle of its first charge
}

func workAsChild(text string) error {
	var d deployment
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	pool, err := pgxpool.New(context.Background(), d.URL)
	if err != nil {
		return err
	}
	worker, err := d.worker(pool)
	if err != nil {
		return err
	}
	return worker.Run(context.Background())
}

var quiet = pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}

func (d deployment) worker(pool *pgxpool.Pool) (*job.Worker, error) {
	client := Caller()
	return job.NewWorker(pool, job.Config{
		Name: d.Name, Lease: d.Lease, Hooks: quiet,
		Queues: []job.Queue{{Name: "orders"}, {Name: "pay"}, {Name: "mail"}},
		Handlers: []job.Handler{
			job.HandleTx("charge", func(ctx context.Context, tx pgx.Tx, t job.Task[string]) error {
				if t.Value == "poison" {
					return pawl.Final(errors.New("no such account"))
				}
				_, err := tx.Exec(ctx, "insert into charged (what) values ($1)", t.Value)
				if d.Dies {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {} // wait for the signal
				}
				return err
			}),
			job.Handle("payment", func(ctx context.Context, t job.Task[string]) error {
				payment := step.Step{Name: "pay", Recovery: step.AtMostOnce(), Provider: "bank", Request: t.Value, Timeout: 5 * time.Second, Hooks: quiet}
				if _, err := step.Run(ctx, pool, t, payment, func(ctx context.Context, c step.Call) (string, error) {
					return Post(ctx, client, d.Provider, t.Value)
				}); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, "insert into charged (what) values ($1)", t.Value)
				return err
			}),
			job.HandleManyTx("welcome", func(ctx context.Context, tx pgx.Tx, batch []job.Task[string]) error {
				_, err := tx.Exec(ctx, "insert into mailed select from generate_series(1, $1::int)", len(batch))
				return err
			}),
		},
	})
}

// Caller returns a client that sends the idempotency key of the surrounding call.
func Caller() *http.Client {
	return &http.Client{Transport: &step.Transport{Base: &http.Transport{DisableKeepAlives: true}}}
}

// Post sends one request to a provider and returns the response.
func Post(ctx context.Context, client *http.Client, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", step.NotSent(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := step.HTTPStatus(answer.StatusCode, answer.Status); err != nil {
		return "", err
	}
	made, err := io.ReadAll(answer.Body)
	return string(made), err
}
