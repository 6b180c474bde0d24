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

// claim claims a document, and returns the token, or "" if it is not to be had.
func (b *bed) claim(id string) (token string) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), "select coalesce((select c.claim_token::text from document_claim($1) as c), '')", id).Scan(&token))
	return token
}

// told returns the answer of one of the functions for a claim, or "late".
func (b *bed) told(call string, args ...any) (answer string) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), "select coalesce(("+call+")::text, 'late')", args...).Scan(&answer))
	return answer
}

// A claim is committed or failed under its own token only, in any order of two attempts.
func TestGuide_TwoPhase(t *testing.T) {
	t.Parallel()
	const (
		commit = "select document_commit($1, $2::uuid, 'TEXT')"
		fail   = "select document_fail($1, $2::uuid, 'broken')"
		mine   = "select document_is_mine($1, $2::uuid)"
		reap   = "select string_agg(r.id || ' ' || r.status, ',') from document_reap() as r"
	)
	b := guided(t)
	say := func(want, call string, args ...any) {
		t.Helper()
		if got := b.told(call, args...); got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}

	// It is done once. A repeat of the commit, whose reply was lost, finds its own token.
	id := b.document()
	first := b.claim(id)
	if again := b.claim(id); first == "" || again != "" {
		t.Errorf("claimed as %q, and again as %q", first, again)
	}
	say("late", reap)
	say("true", commit, id, first)
	say("late", commit, id, first)
	say("true", mine, id, first)
	say("late", fail, id, first)
	say("false", mine, id, "00000000-0000-0000-0000-000000000000")
	if again := b.claim(id); again != "" {
		t.Errorf("claimed a completed document")
	}

	// The holder is late: before the next claim, beside it, and after its commit.
	id = b.document()
	late := b.claim(id)
	b.stuck()
	say(id+" pending", reap)
	say("late", commit, id, late)
	if early := b.claim(id); early != "" {
		t.Errorf("claimed in the pause")
	}
	b.rested()
	newer := b.claim(id)
	if newer == "" || newer == late {
		t.Fatalf("the tokens are %q and %q", late, newer)
	}
	say("late", commit, id, late)
	say("late", fail, id, late)
	say("true", commit, id, newer)
	say("late", commit, id, late)
	say("false", mine, id, late)

	// Failures and deaths count alike. The fifth uses the document up, and a person frees it.
	id = b.document()
	for n := range 5 {
		b.rested()
		token := b.claim(id)
		want := "pending"
		if n == 4 {
			want = "error"
		}
		if n%2 == 0 {
			b.stuck()
			say(id+" "+want, reap)
			continue
		}
		say(want, fail, id, token)
	}
	b.rested()
	if token := b.claim(id); token != "" {
		t.Error("claimed a document that is used up")
	}
	b.want("select count(*) from documents_due as d where d.id = "+id, 0)
	b.exec(strings.Replace("update documents set status = 'pending', losses = 0 where id = 17 and status = 'error'", "17", id, 1))
	say("true", commit, id, b.claim(id))
}

// Six clients claim twenty documents at once, and reapers run beside them. Each is done once.
func TestGuide_TwoPhaseAtOnce(t *testing.T) {
	t.Parallel()
	b := guided(t)
	b.exec("create table effects (what text not null); insert into documents (body) select 'text' from generate_series(1, 20)")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for {
				id := b.told("select d.id from documents_due as d limit 1")
				if id == "late" {
					return
				}
				if token := b.claim(id); token != "" {
					b.summarized(id, token)
				}
				b.exec("select document_reap()")
			}
		})
	}
	all.Wait()
	b.want("select count(*) from documents as d where d.status <> 'completed' or d.losses > 0", 0)
	b.want("select count(*) from effects", 21)
	b.want("select count(distinct e.what) from effects as e", 21)

	// A reaper skips a row whose holder is committing, and does not wait for it.
	id := b.document()
	token := b.claim(id)
	b.stuck()
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(t.Context()) }() // also if the reaper waits for it
	_, err = tx.Exec(t.Context(), "select document_commit($1, $2::uuid, 'TEXT')", id, token)
	b.must(err)
	b.must(pgx.BeginFunc(t.Context(), b.pool, func(reaper pgx.Tx) error {
		if _, err := reaper.Exec(t.Context(), "set local lock_timeout = '1s'"); err != nil {
			return err
		}
		var freed int
		err := reaper.QueryRow(t.Context(), "select count(*) from document_reap()").Scan(&freed)
		if freed > 0 {
			t.Error("it freed a row whose holder is committing")
		}
		return err
	}))
	b.must(tx.Commit(t.Context()))
	b.want("select count(*) from document_reap()", 0)
	b.want("select count(*) from documents as d where d.status <> 'completed'", 0)
}

// summarized commits a document's result and an effect in one transaction.
func (b *bed) summarized(id, token string) {
	b.Helper()
	b.must(pgx.BeginFunc(b.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(b.Context(), "insert into effects select $1::text where document_commit($1::text::bigint, $2::uuid, 'TEXT')", id, token)
		return err
	}))
}

// A psql process is killed between the statements of an attempt, and while its claim waits for a
// lock. Each document is done once, after a reap where the claim had committed.
func TestGuide_TwoPhaseKilled(t *testing.T) {
	t.Parallel()
	b := guided(t)
	b.exec("create table effects (what text not null); delete from documents")
	const session = "select exists (select from pg_stat_activity as a where a.application_name = 'guide' and a.datname = current_database() and "
	steps := []struct{ statement, reached string }{
		{"select claim_token as token from document_claim(:id) \\gset", "select d.status = 'processing' from documents as d where d.id = %s"},
		{"begin;", session + "a.state = 'idle in transaction' and a.query = 'begin;')"},
		{"insert into effects select :id where document_commit(:id, :'token', 'TEXT');",
			session + "a.state = 'idle in transaction' and a.query like 'insert into effects select %s %%')"},
		{"commit;", "select d.status = 'completed' from documents as d where d.id = %s"},
	}
	die := func(id string, step int, before func()) {
		script := "\\set id " + id + "\n"
		for _, s := range steps[:step] {
			script += s.statement + "\n"
		}
		c, _ := b.psql(script)
		before()
		b.must(c.Process.Kill())
		_ = c.Wait()
	}
	for n := range steps {
		id, reached := b.document(), steps[n].reached
		if strings.Contains(reached, "%s") {
			reached = fmt.Sprintf(reached, id)
		}
		die(id, n+1, func() { patience.Row(t, b.pool, "it has run "+steps[n].statement, reached) })
		patience.Row(t, b.pool, "its session has ended", "select not "+strings.TrimPrefix(session, "select ")+"true)")
	}

	// The server goes on with a claim whose client is dead, and commits it.
	id := b.document()
	lock, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = lock.Exec(t.Context(), "select from documents as d where d.id = $1 for update", id)
	b.must(err)
	die(id, 1, func() { b.waiting("the claim waits", "document_claim") })
	b.must(lock.Rollback(t.Context()))
	patience.Row(t, b.pool, "the claim of the dead has committed", fmt.Sprintf(steps[0].reached, id))

	b.want("select count(*) from documents as d where d.status = 'processing'", 4)
	b.want("select count(*) from effects", 1)
	b.stuck()
	b.want("select count(*) from document_reap()", 4)
	b.rested()
	for {
		id := b.told("select d.id from documents_due as d limit 1")
		if id == "late" {
			break
		}
		b.summarized(id, b.claim(id))
	}
	b.want("select count(*) from documents as d where d.status <> 'completed' or d.losses > 1", 0)
	b.want("select count(*) from effects", 5)
	b.want("select count(distinct e.what) from effects as e", 5)
}
