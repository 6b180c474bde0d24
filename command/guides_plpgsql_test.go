package command_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
)

// psql starts a psql process that runs a script. Its standard input stays open.
func (b *bed) psql(script string) (*exec.Cmd, io.WriteCloser) {
	b.Helper()
	c := exec.Command(tool(b.T, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", b.url)
	c.Env = append(c.Environ(), "PGAPPNAME=guide")
	in, err := c.StdinPipe()
	b.must(err)
	b.must(c.Start())
	b.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	_, err = io.WriteString(in, script)
	b.must(err)
	return c, in
}

// A psql process is killed after create_order_once and before COMMIT. The next call creates the
// order, and one event.
func TestGuide_SessionKilled(t *testing.T) {
	t.Parallel()
	b := guided(t)
	c, _ := b.psql("begin; select create_order_once('acme', 'killed', 'K-1', 'ann', 5);\n")
	patience.Row(t, b.pool, "the order is written", "select exists (select from pg_stat_activity as a where a.application_name = 'guide'"+
		" and a.datname = current_database() and a.state = 'idle in transaction' and a.query like '%create_order_once%')")
	b.must(c.Process.Kill())
	_ = c.Wait()
	const call = "select c.outcome from create_order_once('acme', 'killed', 'K-1', 'ann', 5, 60000) as c"
	if first, second := b.ask(call), b.ask(call); first != "created" || second != "replayed" {
		t.Errorf("%s, and then %s", first, second)
	}
	b.want("select count(*) from orders where order_no = 'K-1'", 1)
	b.want("select count(*) from order_audit where key = 'killed'", 1)
	b.want("select count(*) from pawl_v1.outbox_pending as p, orders as o where o.order_no = 'K-1' and p.aggregate_id = o.id::text", 1)
}

// A client makes the calls of the intent log on the page. It stops before the named statement, as a
// process that is killed does.
type client struct {
	*bed
	bank string
	dies string
}

// charge charges an order, as the page says, and returns the last word: "charged" if it is done.
func (c client) charge(order int64) string {
	for fence := (*int64)(nil); ; {
		var said, key string
		var call *int64
		var cents int
		err := c.pool.QueryRow(c.Context(), "select b.outcome, b.fence, b.call_fence, coalesce(b.provider_key, ''), b.cents from charge_begin($1, $2) as b", order, fence).
			Scan(&said, &fence, &call, &key, &cents)
		c.must(err)
		switch said {
		case "call", "probe":
			if c.dies == said {
				return "dead before " + said
			}
			ended, answer := c.send(said, key, cents)
			if c.dies == "end" {
				return "dead before end"
			}
			c.must(c.pool.QueryRow(c.Context(), "select charge_end($1, $2, $3, $4::jsonb)", order, call, ended, answer).Scan(&ended))
			switch ended {
			case "planned":
				if answer == nil && said == "call" {
					return "in doubt"
				}
				continue
			case "unknown":
				return ended
			}
		case "executed", "declined":
		default:
			return said
		}
		if c.dies == "finish" {
			return "dead before finish"
		}
		_, err = c.pool.Exec(c.Context(), "select charge_finish($1, $2)", order, fence)
		if pawl.CodeOf(err) == pawl.CodeFenceLost {
			return "fence lost"
		}
		c.must(err)
		return "charged"
	}
}

// send calls or asks the bank, and returns the argument of charge_end.
func (c client) send(said, key string, cents int) (ended string, answer *string) {
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.bank+"/charges?key="+url.QueryEscape(key), nil)
	if said == "call" {
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, c.bank+"/charges", strings.NewReader(fmt.Sprint(cents)))
		r.Header.Set("Idempotency-Key", key)
	}
	c.must(err)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return "ambiguous", nil
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	text := string(body)
	switch {
	case err != nil || w.StatusCode >= 500:
		return "ambiguous", nil
	case w.StatusCode == http.StatusNotFound:
		return "not_executed", nil
	case w.StatusCode == http.StatusPaymentRequired:
		return "refused", nil
	}
	return "executed", &text
}

// later moves the leases of commands and the deadlines of calls into the past.
func (b *bed) later() {
	b.Helper()
	b.exec("update pawl.command set lease_expires_at = clock_timestamp() - interval '1 minute' where lease_expires_at is not null")
	b.exec("update pawl.step_call set started_at = started_at - interval '1 day', not_after = not_after - interval '1 day', ended_at = ended_at - interval '1 day'")
}

// forgetful returns a bank that knows no keys: each request is another charge. lie chooses its
// faults.
func forgetful(t *testing.T, lie func(n int) pawltest.Lie) *pawltest.Provider {
	return pawltest.NewProvider(t, time.Hour, func(n int, _ *http.Request) pawltest.Lie {
		if l := lie(n); l != "" {
			return l
		}
		return pawltest.Forget
	})
}

// The client dies at each point of the intent log, and the bank gives no answer. The order is
// charged once.
func TestGuide_IntentLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dies, says string
		lie        pawltest.Lie
	}{
		{"", "charged", ""},
		{"call", "dead before call", ""},
		{"end", "dead before end", ""},
		{"finish", "dead before finish", ""},
		{"", "in doubt", pawltest.CutAfter},
		{"", "in doubt", pawltest.CutBefore},
		{"", "in doubt", pawltest.FailAfter},
		{"", "charged", pawltest.Decline},
	} {
		t.Run(c.says+string(c.lie), func(t *testing.T) {
			t.Parallel()
			b := guided(t)
			bank := forgetful(t, func(n int) pawltest.Lie {
				if n == 0 {
					return c.lie
				}
				return ""
			})
			if said := (client{b, bank.URL, c.dies}).charge(1); said != c.says {
				t.Errorf("said %s, want %s", said, c.says)
			}
			if c.says != "charged" {
				if said := (client{b, bank.URL, ""}).charge(1); said != "later" && c.dies != "" || said == "charged" {
					t.Errorf("while the first may still act: %s", said)
				}
				b.later()
			}
			if said := (client{b, bank.URL, "probe"}).charge(1); said != "charged" && said != "dead before probe" {
				t.Errorf("the second attempt: %s", said)
			}
			b.later()
			if said := (client{b, bank.URL, ""}).charge(1); said != "charged" {
				t.Errorf("the third attempt: %s", said)
			}
			b.want("select count(*) from orders_to_charge", 0)
			charges := bank.Charges()
			if c.lie == pawltest.Decline {
				b.want("select count(*) from orders where id = 1 and charge is null and declined is not null", 1)
				if len(charges) != 0 {
					t.Errorf("%d charges", len(charges))
				}
				return
			}
			if len(charges) != 1 {
				t.Fatalf("%d charges", len(charges))
			}
			b.want("select count(*) from orders where id = 1 and declined is null and charge = '"+charges[0].ID+"'", 1)
		})
	}
}

// Two clients charge one order at once. A client whose command was taken over may not finish.
func TestGuide_IntentLogRace(t *testing.T) {
	t.Parallel()
	b := guided(t)
	bank := forgetful(t, func(int) pawltest.Lie { return "" })
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { client{b, bank.URL, ""}.charge(1) })
	}
	all.Wait()
	patience.Until(t, "the order is charged", func() bool { return client{b, bank.URL, ""}.charge(1) == "charged" })
	if n := len(bank.Charges()); n != 1 {
		t.Errorf("%d charges", n)
	}

	// A late client: its command has a newer attempt.
	var order, first, second int64
	b.must(b.pool.QueryRow(t.Context(), "insert into orders (tenant, order_no, customer, cents) values ('acme', 'late', 'ann', 7) returning id").Scan(&order))
	b.must(b.pool.QueryRow(t.Context(), "select b.fence from charge_begin($1) as b", order).Scan(&first))
	b.later()
	b.must(b.pool.QueryRow(t.Context(), "select b.fence from charge_begin($1) as b", order).Scan(&second))
	_, err := b.pool.Exec(t.Context(), "select charge_finish($1, $2)", order, first)
	if pawl.CodeOf(err) != pawl.CodeFenceLost {
		t.Errorf("the late client: %v", err)
	}
}

// waiting waits until the session of psql waits for a lock in a statement.
func (b *bed) waiting(what, statement string) {
	b.Helper()
	patience.Row(b.T, b.pool, what, "select exists (select from pg_stat_activity as a, pg_locks as l where a.application_name = 'guide'"+
		" and a.datname = current_database() and l.pid = a.pid and not l.granted and a.query like '%' || $1 || '%')", statement)
}

// buried ends the worker's lease, and takes back its job.
const buried = "update pawl.worker set seen_at = clock_timestamp() - interval '1 day'; select pawl_v1.job_sweep('{interest}')"

// The session of a worker dies in its second slice. Two others then work at once. Each account gets
// its interest once.
func TestGuide_LongWork(t *testing.T) {
	t.Parallel()
	b := guided(t)
	b.want("select count(*) from interest", 250) // by the page itself
	b.exec("select pawl_v1.job_enqueue('bank', 'interest', '{}', '{\"key\": \"2026-12\"}')")
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), "select from accounts where id = 150 for update")
	b.must(err)
	c, _ := b.psql("call pay_interest('1 hour');\n")
	b.waiting("the worker is in its second slice", "pay_interest")
	b.want("select count(*) from interest", 350)
	b.must(c.Process.Kill())
	_ = c.Wait()
	b.exec("select pg_terminate_backend(a.pid, 60000) from pg_stat_activity as a where a.application_name = 'guide' and a.datname = current_database()")
	b.must(tx.Rollback(t.Context()))
	b.want("select count(*) from interest", 350)
	_, err = b.pool.Exec(t.Context(), buried, pgx.QueryExecModeSimpleProtocol)
	b.must(err)
	b.exec("update pawl.job set available_at = clock_timestamp()") // a crash has a pause
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { b.exec("call pay_interest()") })
	}
	all.Wait()
	b.want("select count(*) from interest", 500)
	b.want("select count(*) from accounts where cents <> 10000 + 100 + 101", 0)
	b.want("select count(*) from pawl.job where kind = 'interest'", 0)
}

// A worker loses its job between two slices, and wakes. The fence stops it.
func TestGuide_LongWorkIsFenced(t *testing.T) {
	t.Parallel()
	b := guided(t)
	b.exec("select pawl_v1.job_enqueue('bank', 'interest', '{}', '{\"key\": \"2026-12\"}')")
	account, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = account.Exec(t.Context(), "select from accounts where id = 150 for update")
	b.must(err)
	c := exec.Command(tool(t, "psql"), "-X", "-q", "-v", "VERBOSITY=sqlstate", "-c", "call pay_interest('1 hour')", b.url)
	c.Env = append(c.Environ(), "PGAPPNAME=guide")
	var said strings.Builder
	c.Stderr = &said
	b.must(c.Start())
	b.waiting("the worker is in its second slice", "pay_interest")
	worker, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = worker.Exec(t.Context(), "select from pawl.worker for update")
	b.must(err)
	b.must(account.Rollback(t.Context()))
	patience.Row(t, b.pool, "the second slice has committed", "select count(*) = 450 from interest")
	b.waiting("the worker sends a heartbeat", "pay_interest")
	_, err = worker.Exec(t.Context(), buried, pgx.QueryExecModeSimpleProtocol)
	b.must(err)
	b.must(worker.Commit(t.Context()))
	if err := c.Wait(); err == nil || !strings.Contains(said.String(), "P4020") {
		t.Errorf("it ended with %v: %s", err, &said)
	}
	b.want("select count(*) from interest", 450)
	b.exec("update pawl.job set available_at = clock_timestamp()")
	b.exec("call pay_interest()")
	b.want("select count(*) from interest", 500)
	b.want("select count(*) from accounts where cents <> 10000 + 100 + 101", 0)
}
