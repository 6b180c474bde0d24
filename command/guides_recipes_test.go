package command_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// guideTables are the tables of the recipes in Python and JavaScript. They have no unique keys, so
// that a second effect shows.
const guideTables = `
create table orders (
  id       bigint generated always as identity primary key,
  tenant   text,
  order_no text,
  cents    int,
  charge   text,
  declined text
);
create table effects (what text not null);`

// A speaker runs the recipes of a page in its language.
type speaker struct {
	// command returns a process that runs a recipe: the URL, the recipe's name and its arguments.
	command func(arguments ...string) *exec.Cmd
	// driver is false if the reader's packages are not installed. Then no process is killed, to
	// save time.
	driver bool
}

// A recipe runs one recipe on a database of its own.
type recipe struct {
	*bed
	speaker
}

// start starts a process that kills itself at a place, if at is not 0.
func (r recipe) start(at int, arguments ...string) (c *exec.Cmd, out, errs *bytes.Buffer) {
	r.Helper()
	c = r.command(append([]string{r.url}, arguments...)...)
	c.Env = append(c.Environ(), fmt.Sprintf("DIE_AT=%d", at))
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	c.Stdout, c.Stderr = out, errs
	r.must(c.Start())
	return c, out, errs
}

// run runs a process to its end and returns what it printed.
func (r recipe) run(arguments ...string) string {
	r.Helper()
	c, out, errs := r.start(0, arguments...)
	if err := c.Wait(); err != nil {
		r.Errorf("%s: %v\n%s%s", arguments, err, out, errs)
	}
	return strings.TrimSpace(out.String())
}

// atOnce runs a process five times at once, and returns what each printed.
func (r recipe) atOnce(arguments ...string) (said []string) {
	r.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			text := r.run(arguments...)
			mu.Lock()
			defer mu.Unlock()
			said = append(said, text)
		})
	}
	all.Wait()
	return said
}

// killed runs a process for each place at which it can die, and returns the number of places.
// arguments returns the arguments of the process that dies at place n.
func (r recipe) killed(arguments func(n int) []string) int {
	r.Helper()
	for n := 1; ; n++ {
		c, out, errs := r.start(n, arguments(n)...)
		err := c.Wait()
		if err == nil {
			return n - 1
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			r.Fatalf("place %d: %v\n%s%s", n, err, out, errs)
		}
	}
}

// quiet waits until the server has noticed the deaths, so that their transactions have ended.
func (r recipe) quiet() {
	r.Helper()
	patience.Row(r.T, r.pool, "the sessions of dead processes have ended",
		"select count(*) = 0 from pg_stat_activity as a where a.datname = current_database() and a.pid <> pg_backend_pid() and a.application_name <> 'guide test'")
}

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i+1))
	}
	return all
}

// recipes runs each recipe twice, at once, and killed before and after each of its statements.
func recipes(t *testing.T, s speaker) {
	for name, test := range map[string]func(recipe){
		"idempotency key": recipe.orders, "idempotent consumer": recipe.mails, "webhook": recipe.webhooks, "intent log": recipe.charges,
		"intent log, killed in the call": recipe.chargesInDoubt, "lease": recipe.work, "lost lease": recipe.lost,
		"two-phase guard": recipe.documents, "two-phase guard, late": recipe.documentsLate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, pawltest.URL(t, guideTables)+"&application_name=guide+test")
			b.url = strings.TrimSuffix(b.url, "&application_name=guide+test")
			test(recipe{b, s})
		})
	}
}

// one fails unless a query over groups finds as many groups as wanted, each with one row.
func (r recipe) one(want int, groups string) {
	r.Helper()
	r.want("select count(*) from ("+groups+") as g", want)
	r.want("select count(*) from ("+groups+") as g where g.n <> 1", 0)
}

const (
	ordersByNo = "select o.order_no, count(*) as n from orders as o group by 1"
	effectsBy  = "select e.what, count(*) as n from effects as e group by 1"
)

func (r recipe) orders() {
	first := strings.Split(r.run("order", "a", "a"), "\n")
	if len(first) != 2 || !strings.Contains(strings.ToLower(first[0]), "false") || !strings.Contains(strings.ToLower(first[1]), "true") {
		r.Errorf("twice: %q", first)
	}
	r.atOnce("order", "b")
	want := 2
	if r.driver {
		n := r.killed(func(n int) []string { return []string{"order", fmt.Sprint("k", n)} })
		if n < 10 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		r.run(append([]string{"order"}, names("k", n+1)...)...)
		want += n + 1
	}
	r.one(want, ordersByNo)
	r.one(want, "select p.aggregate_id, count(*) as n from pawl_v1.outbox_pending as p, orders as o where o.id::text = p.aggregate_id group by 1")
	r.want("select count(*) from pawl_v1.outbox_pending", want)
	r.want("select count(*) from pawl.command as c where c.status <> 'succeeded' or c.expires_at - c.updated_at not between '7 days' and '7 days 1 minute'", 0)
}

func (r recipe) mails() {
	r.run("mail", "a", "a")
	var ends []func() error
	for range 5 {
		c, _, _ := r.start(0, "mail", "b")
		ends = append(ends, c.Wait)
	}
	for _, end := range ends {
		_ = end() // 55P03: another has it
	}
	r.run("mail", "b")
	want := 2
	if r.driver {
		n := r.killed(func(n int) []string { return []string{"mail", fmt.Sprint("k", n)} })
		if n < 6 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		r.run(append([]string{"mail"}, names("k", n+1)...)...)
		want += n + 1
	}
	r.one(want, effectsBy)
}

// signedAt signs a body as Stripe does, at another time than now.
func signedAt(secret, body string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac.Sum(nil))
}

func (r recipe) webhooks() {
	sign := func(secret, body string) string {
		request := pawltest.SignWebhook(r.T, webhook.Stripe(webhook.Secret{Value: secret}), "/", "", []byte(body))
		return request.Header.Get("Stripe-Signature")
	}
	const secret = "the secret of the test"
	event := func(id string, n int) string {
		return fmt.Sprintf(`{"id":%q,"type":"paid","name":"Zoë","pending_webhooks":%d}`, id, n)
	}
	send := func(header, body string) string { return r.run("webhook", header, body) }
	for _, c := range []struct{ header, body, want string }{
		{sign("a wrong secret, as long", event("a", 1)), event("a", 1), "400"},
		{sign(secret, event("a", 1)), event("b", 1), "400"},
		{strings.Replace(sign(secret, event("a", 1)), "t=", "t=1", 1), event("a", 1), "400"},
		{signedAt(secret, event("a", 1), time.Now().Add(-time.Hour)), event("a", 1), "400"},
		{signedAt(secret, event("a", 1), time.Now().Add(time.Hour)), event("a", 1), "400"},
		{"", event("a", 1), "400"},
		{"t=é,v1=é", event("a", 1), "400"},
		{sign(secret, event("a", 2)), event("a", 2), "200"},
		{sign(secret, event("a", 1)), event("a", 1), "200"},
		{"v1=é," + sign(secret, event("b", 1)), event("b", 1), "200"},
		{sign(secret, `{"id":"a","type":"refunded"}`), `{"id":"a","type":"refunded"}`, "200"},
		{sign(secret, `{"id":"a","type":"refunded"}`), `{"id":"a","type":"refunded"}`, "200"},
	} {
		if got := send(c.header, c.body); got != c.want {
			r.Errorf("%s with %q: %s, want %s", c.body, c.header, got, c.want)
		}
	}
	r.want("select count(*) from pawl_v1.dead_letters as d where convert_from(d.payload, 'UTF8') like '%refunded%'", 1)
	r.want("select count(*) from pawl.delivery as d where d.verified_by = 'new'", 3)
	// The receiver keeps unreadable bodies once, and does not ask for them again.
	unreadable := []string{"not json", `"x"`, "[]", "7", "null", `{"type":"paid"}`, `{"id":7}`, `{"id":""}`, `{"id":"\u0000"}`, `{"id":"\ud800"}`,
		`{"id":"` + strings.Repeat("a", 256) + `"}`, strings.Repeat("[", 50_000)}
	for _, body := range append(unreadable, unreadable[0]) {
		if got := send(sign(secret, body), body); got != "200" {
			r.Errorf("%.20s: %s, want 200", body, got)
		}
	}
	r.want("select count(*) from pawl_v1.dead_letters as d where d.last_error like '%no JSON object%'", len(unreadable))
	body := event("c", 1)
	for _, said := range r.atOnce("webhook", sign(secret, body), body) {
		if said != "200" && said != "503" {
			r.Errorf("at once: %s", said)
		}
	}
	want := 3
	if r.driver {
		body := func(n int) string { return event(fmt.Sprint("k", n), 1) }
		n := r.killed(func(n int) []string { return []string{"webhook", sign(secret, body(n)), body(n)} })
		if n < 8 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		for i := range n + 1 {
			if said := send(sign(secret, body(i+1)), body(i+1)); said != "200" {
				r.Errorf("sent again: %s", said)
			}
		}
		want += n + 1
	}
	r.one(want, effectsBy)
}

// place makes an order that is not charged.
func (r recipe) place() (id string) {
	r.Helper()
	r.must(r.pool.QueryRow(r.Context(), "insert into orders (cents) values (5) returning id::text").Scan(&id))
	return id
}

func (r recipe) charges() {
	var declines atomic.Bool
	bank := forgetful(r.T, func(int) pawltest.Lie {
		if declines.Swap(false) {
			return pawltest.Decline
		}
		return ""
	})
	charges := 1
	first := r.place()
	if said := strings.Split(r.run("charge", bank.URL, first, first), "\n"); len(said) != 2 || said[0] != said[1] || !strings.Contains(said[0], "ch_") {
		r.Errorf("twice: %q", said)
	}
	declines.Store(true)
	second := r.place()
	if said := strings.Split(r.run("charge", bank.URL, second, second), "\n"); len(said) != 2 || said[0] != said[1] || !strings.Contains(said[0], "declined") {
		r.Errorf("declined: %q", said)
	}
	charges++
	third := r.place()
	for _, said := range r.atOnce("charge", bank.URL, third) {
		if said != "InProgress" && !strings.Contains(said, "ch_") {
			r.Errorf("at once: %s", said)
		}
	}
	if r.driver {
		n := r.killed(func(int) []string { return []string{"charge", bank.URL, r.place()} })
		if n < 20 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		if said := r.run("reconcile", bank.URL); strings.TrimSpace(strings.ReplaceAll(said, "InProgress", "")) != "" {
			r.Errorf("while leases run: %s", said)
		}
		r.later()
		charges += n + 1
	}
	r.atOnce("reconcile", bank.URL)
	if said := r.run("reconcile", bank.URL); said != "" {
		r.Errorf("not settled: %s", said)
	}
	r.settled(bank, charges)
}

// settled fails unless each order is charged once.
func (r recipe) settled(bank *pawltest.Provider, charges int) {
	r.Helper()
	r.want("select count(*) from orders as o where o.charge is null and o.declined is null", 0)
	r.want("select count(distinct o.charge) from orders as o", charges)
	by := map[string]int{}
	for _, c := range bank.Charges() {
		by[c.Key]++
		if by[c.Key] > 1 {
			r.Errorf("charged again: %s", c.Key)
		}
	}
	if len(by) != charges {
		r.Errorf("%d charges, want %d", len(by), charges)
	}
}

// chargesInDoubt kills the process while its call hangs, before and after the bank has acted. It
// also cuts the connection and answers 500.
func (r recipe) chargesInDoubt() {
	lies := []pawltest.Lie{pawltest.TimeOutBefore, pawltest.TimeOutAfter, pawltest.CutBefore, pawltest.CutAfter, pawltest.FailBefore, pawltest.FailAfter}
	called := make(chan bool, 10)
	bank := forgetful(r.T, func(n int) pawltest.Lie {
		called <- true
		if n < len(lies) {
			return lies[n]
		}
		return ""
	})
	for _, lie := range lies {
		c, out, errs := r.start(0, "charge", bank.URL, r.place())
		patience.Receive(r.T, "the bank is called", called)
		if lie == pawltest.TimeOutAfter {
			patience.Until(r.T, "the bank has acted", func() bool { return len(bank.Charges()) == 1 })
		}
		if lie == pawltest.TimeOutBefore || lie == pawltest.TimeOutAfter {
			r.must(c.Process.Kill())
			_ = c.Wait()
			continue
		}
		if err := c.Wait(); err != nil || strings.Contains(out.String(), "ch_") {
			r.Errorf("%s: %v, %s%s", lie, err, out, errs)
		}
	}
	r.quiet()
	if said := strings.Fields(r.run("reconcile", bank.URL)); len(said) != len(lies) {
		r.Errorf("while requests may take effect: %s", said)
	}
	r.later()
	if said := r.run("reconcile", bank.URL); said != "" {
		r.Errorf("not settled: %s", said)
	}
	r.settled(bank, len(lies))
}

func (r recipe) enqueue(queue, what string) {
	r.Helper()
	_, err := r.pool.Exec(r.Context(), "select pawl_v1.job_enqueue($1, 'long', convert_to($2, 'UTF8'))", queue, fmt.Sprintf(`{"what": %q}`, what))
	r.must(err)
}

// bury takes back the jobs of all workers, also of those that live.
func (r recipe) bury() {
	r.Helper()
	tx, err := r.pool.Begin(r.Context())
	r.must(err)
	for _, statement := range []string{
		"update pawl.worker set seen_at = clock_timestamp() - interval '1 day'",
		"select pawl_v1.job_sweep('{long}')",
		"update pawl.job set available_at = clock_timestamp() where status = 'pending'",
	} {
		_, err := tx.Exec(r.Context(), statement)
		r.must(err)
	}
	r.must(tx.Commit(r.Context()))
}

func (r recipe) work() {
	for _, what := range names("a", 5) {
		r.enqueue("long", what)
	}
	r.atOnce("worker", "quick", "3600", "long")
	want := 5
	if r.driver {
		n := r.killed(func(n int) []string {
			queue := fmt.Sprint("k", n)
			r.enqueue(queue, queue)
			return []string{"worker", "quick", "3600", queue}
		})
		if n < 12 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		r.bury()
		var left []string
		r.must(r.pool.QueryRow(r.Context(), "select array_agg(j.queue) from pawl.job as j").Scan(&left))
		r.run(append([]string{"worker", "quick", "3600"}, left...)...)
		want += n + 1
	}
	r.one(want, effectsBy)
	r.want("select count(*) from pawl.job", 0)
}

// A working is a process of a recipe in the middle of its work.
type working struct {
	wake  func()        // goes on, if it waits for that
	said  <-chan string // its further lines, until it ends
	ended <-chan error
}

// works starts a process and returns when it says that it works.
func (r recipe) works(args ...string) working {
	r.Helper()
	c := r.command(append([]string{r.url}, args...)...)
	in, err := c.StdinPipe()
	r.must(err)
	out, err := c.StdoutPipe()
	r.must(err)
	c.Stderr = os.Stderr
	r.must(c.Start())
	lines, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
		ended <- c.Wait()
	}()
	if said := patience.Receive(r.T, "the work has begun", lines); said != "working" {
		r.Errorf("said %s", said)
	}
	return working{func() { _, err := io.WriteString(in, "go on\n"); r.must(err) }, lines, ended}
}

func (r recipe) lost() {
	for _, mode := range []string{"slow", "deaf"} {
		lease := map[string]string{"slow": "6", "deaf": "3600"}[mode]
		r.enqueue("long", mode)
		w := r.works("worker", mode, lease, "long")
		r.bury()
		if said := r.run("worker", "quick", "3600", "long"); said != "ended" {
			r.Errorf("the second worker said %s", said)
		}
		r.one(1, effectsBy+" having e.what = '"+mode+"'")
		if mode == "deaf" {
			w.wake()
		} else {
			if said := patience.Receive(r.T, "the worker stops", w.said); said != "stopped" {
				r.Errorf("said %s", said)
			}
		}
		if said := patience.Receive(r.T, "the worker ends", w.said); said != "ended" {
			r.Errorf("said %s", said)
		}
		for line := range w.said {
			r.Errorf("also said %s", line)
		}
		r.must(<-w.ended)
	}
	r.one(2, effectsBy)
	r.want("select count(*) from pawl.job", 0)
}

// documentsTable creates the table of the two-phase guard, as the page has it.
func (b *bed) documentsTable() {
	b.Helper()
	for _, block := range blocksOf(b.T, "plpgsql.md", "sql") {
		if strings.HasPrefix(block, "create table documents") {
			b.exec(block + "delete from documents")
			return
		}
	}
	b.Fatal("plpgsql.md creates no table documents")
}

func (b *bed) document() (id string) {
	b.Helper()
	b.must(b.pool.QueryRow(b.Context(), "insert into documents (body) values ('text') returning id::text").Scan(&id))
	return id
}

// stuck moves all claims into the past, so that a reaper takes them back.
func (b *bed) stuck() {
	b.Helper()
	b.exec("update documents set claimed_at = claimed_at - interval '1 hour' where status = 'processing'")
}

// rested ends the pauses after losses.
func (b *bed) rested() {
	b.Helper()
	b.exec("update documents set due_at = clock_timestamp()")
}

const documentsNotDone = "select count(*) from documents as d where d.status <> 'completed' or d.summary is distinct from 'TEXT'"

func (r recipe) documents() {
	r.documentsTable()
	first := r.document()
	if said := r.run("documents", "quick", first, first); said != "completed\ntaken" {
		r.Errorf("twice: %q", said)
	}
	second := r.document()
	done := 0
	for _, said := range r.atOnce("documents", "quick", second) {
		if said == "completed" {
			done++
		} else if said != "taken" {
			r.Errorf("at once: %s", said)
		}
	}
	if done != 1 {
		r.Errorf("%d of five at once completed it", done)
	}
	documents := 2
	if r.driver {
		n := r.killed(func(int) []string { return []string{"documents", "quick", r.document()} })
		if n < 8 {
			r.Errorf("only %d places", n)
		}
		r.quiet()
		r.run("reap") // takes back no claim that may live
		r.want("select count(*) from documents as d where d.losses > 0", 0)
		documents += n + 1
		// A reaper dies at each place. The first one whose COMMIT arrives frees the rows.
		r.killed(func(int) []string {
			r.stuck()
			return []string{"reap"}
		})
		r.quiet()
		r.stuck()
		r.atOnce("reap")
		r.rested()
		r.run(append([]string{"documents", "quick"}, strings.Fields(r.run("reap"))...)...)
	}
	r.want(documentsNotDone, 0)
	r.one(documents, effectsBy)
	r.want("select count(*) from documents as d where d.losses > 1", 0)

	// The work fails each time: five losses, and the document is used up.
	broken := r.document()
	for range 5 {
		r.rested()
		if said := r.run("documents", "broken", broken); said != "no summary" {
			r.Errorf("broken: %s", said)
		}
	}
	r.rested()
	if said := r.run("documents", "quick", broken); said != "taken" {
		r.Errorf("used up: %s", said)
	}
	r.want("select count(*) from documents as d where d.status = 'error' and d.losses = 5 and d.last_error = 'no summary' and d.summary is null", 1)
	r.one(documents, effectsBy)
}

// documentsLate lets a process work past the stuck time. Another completes the document meanwhile,
// or has claimed it and still works. Then the first one throws its result away.
func (r recipe) documentsLate() {
	r.documentsTable()
	ends := func(w working, want string) {
		r.Helper()
		w.wake()
		if said := patience.Receive(r.T, "the process ends", w.said); said != want {
			r.Errorf("said %s, want %s", said, want)
		}
		r.must(<-w.ended)
	}
	free := func() {
		r.Helper()
		r.stuck()
		r.run("reap")
		r.rested()
	}

	first := r.document()
	late := r.works("documents", "deaf", first)
	free()
	if said := r.run("documents", "quick", first); said != "completed" {
		r.Errorf("the second said %s", said)
	}
	ends(late, "late")

	second := r.document()
	late = r.works("documents", "deaf", second)
	free()
	newer := r.works("documents", "deaf", second) // the status is processing again
	ends(late, "late")
	r.want("select count(*) from documents as d where d.status = 'processing'", 1)
	ends(newer, "completed")

	r.want(documentsNotDone, 0)
	r.one(2, effectsBy)
}
