package step_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// A bed is a database, a provider, and workers that call it.
type bed struct {
	*testing.T
	pool     *pgxpool.Pool
	provider *pawltest.Provider
	client   *http.Client
	counters pawl.Counters
}

func setup(t *testing.T, memory time.Duration, lie func(int, *http.Request) pawltest.Lie) *bed {
	t.Helper()
	return &bed{T: t, pool: pawltest.DB(t), provider: pawltest.NewProvider(t, memory, lie),
		client: &http.Client{Transport: &step.Transport{Reads: true}}}
}

// lies makes a provider misbehave in its first requests.
func lies(ls ...pawltest.Lie) func(int, *http.Request) pawltest.Lie {
	return func(n int, _ *http.Request) pawltest.Lie {
		if n < len(ls) {
			return ls[n]
		}
		return ""
	}
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// charge asks the provider for one charge.
func (b *bed) charge(ctx context.Context, body string) (c pawltest.Charge, err error) {
	return charge(ctx, b.client, b.provider.URL, body)
}

func charge(ctx context.Context, client *http.Client, to, body string) (c pawltest.Charge, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to+"/charges", bytes.NewReader([]byte(body)))
	if err != nil {
		return c, err
	}
	return answerOf(client.Do(r))
}

func answerOf(response *http.Response, err error) (c pawltest.Charge, _ error) {
	if err != nil {
		return c, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = step.HTTPStatus(response.StatusCode, string(text))
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}

// found returns a probe that asks the provider for a charge.
func (b *bed) found(body string) step.Probe {
	return func(ctx context.Context, _ step.Call) (step.ProbeResult, any, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.provider.URL+"/charges?body="+url.QueryEscape(body), nil)
		if err != nil {
			return "", nil, err
		}
		response, err := b.client.Do(r)
		if err == nil && response.StatusCode == http.StatusNotFound {
			return step.NotExecuted, nil, response.Body.Close()
		}
		c, err := answerOf(response, err)
		return step.Executed, c, err
	}
}

// step returns a step whose timeout a busy machine does not reach. Tests set a shorter one if the
// provider stays silent, or if the next call waits until this one ends.
func (b *bed) step(policy step.Recovery) step.Step {
	return step.Step{Name: "charge", Recovery: policy, Request: "100 EUR", Timeout: 30 * time.Second, Hooks: b.counters.Hooks()}
}

// pay executes the step charge for an owner.
func (b *bed) pay(h pawl.Holder, s step.Step) (pawltest.Charge, error) {
	return step.Run(b.Context(), b.pool, h, s, func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
		made, err := b.charge(ctx, "100 EUR")
		c.Reference(made.ID)
		return made, err
	})
}

// claim enqueues a job and claims it, as a worker that does nothing else.
func (b *bed) claim() job.Job {
	b.Helper()
	e, err := job.Enqueue(b.Context(), b.pool, job.Request{Queue: "pay", Kind: "payment"})
	b.must(err)
	return b.reclaim(e.ID)
}

// reclaim claims a job again, as if its lease had expired.
func (b *bed) reclaim(id int64) (j job.Job) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), `update pawl.job set status = 'pending', claimed_by = null, lease_expires_at = null where id = $1 and status <> 'unknown'`, id)
	b.must(err)
	row := b.pool.QueryRow(b.Context(), `select c.fence, c.created_at, c.attempts from pawl_v1.job_claim_id($1, null, '{"early": true}') as c`, id)
	j = job.Job{ID: id, Queue: "pay", Kind: "payment"}
	b.must(row.Scan(&j.Fence, &j.CreatedAt, &j.Attempt))
	return j
}

func (b *bed) wantCharges(n int) {
	b.Helper()
	if got := b.provider.Charges(); len(got) != n {
		b.Errorf("%d charges, want %d: %+v", len(got), n, got)
	}
}

func (b *bed) wantStatus(status string) {
	b.Helper()
	var got string
	b.must(b.pool.QueryRow(b.Context(), "select coalesce(string_agg(e.status, ' ' order by e.step), 'none') from pawl.step as e").Scan(&got))
	if got != status {
		b.Errorf("the steps are %s, want %s", got, status)
	}
}

func (b *bed) count(query string, args ...any) (n int) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), query, args...).Scan(&n))
	return n
}

func (b *bed) until(what string, holds func() bool) {
	b.Helper()
	patience.Until(b, what, holds)
}

func (b *bed) work(fn func(context.Context, job.Task[string]) error) {
	b.Helper()
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "pay", Concurrency: 4}}, Handlers: []job.Handler{job.Handle("payment", fn)},
		Poll: 10 * time.Millisecond, Backoff: job.Backoff{Base: time.Millisecond, Max: 20 * time.Millisecond}, Hooks: b.counters.Hooks()})
	b.must(err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Errorf("worker: %v", err)
		}
	})
}

func (b *bed) enqueue(body string) int64 {
	b.Helper()
	e, err := job.Enqueue(b.Context(), b.pool, job.Request{Queue: "pay", Kind: "payment", Payload: []byte(fmt.Sprintf("%q", body))})
	b.must(err)
	return e.ID
}
