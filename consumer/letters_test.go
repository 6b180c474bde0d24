package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/step"
)

// Deliveries become dead letters in every way, and an operator does anything about them. Each takes
// effect at most once, however often it is redelivered. The inbox, the jobs and the effects agree.
// Every delivery that no verb discards takes effect in the end. PAWL_SEED repeats a run.
func TestLetters_AnyVerbAnyRedelivery(t *testing.T) {
	t.Parallel()
	forms := map[string]func(*form){"gate": func(*form) {}}
	for name, set := range allForms {
		forms[name] = set
	}
	for name, set := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPost(t, name, set)
			p.send(2, p.all...)
			p.consume()
			for round := range 3 {
				p.corrected = round > 0 || p.random.IntN(3) == 0
				p.operate()
				p.send(1, p.some()...)
				p.consume()
				p.judge()
			}
			p.corrected = true
			for range 2 {
				p.send(1, p.all...)
				p.consume()
				p.settle()
				p.retryAll(false)
				p.consume()
				p.judge()
			}
			p.judgeEnd()
		})
	}
}

// A post is a consumer whose deliveries become dead letters until its configuration is corrected.
type post struct {
	*bed
	random    *rand.Rand
	corrected bool
	all       []pawl.Delivery
	discarded map[string]bool // by intent and payload
	discards  int
	refused   map[string]bool // by intent, if its step was refused

	mu    sync.Mutex
	calls map[string]int // of the provider, by intent
}

// Ways to become a dead letter, or to wait for an operator. Those with "invalid" have no intent.
var letterKinds = []string{"invalid key", "invalid panic", "invalid size", "invalid print", "invalid lane", "invalid other", "mismatch", "stale", "final", "attempts", "crash", "semantic", "fine"}

func newPost(t *testing.T, form string, set func(*form)) *post {
	seed := rand.Uint64()
	if text := os.Getenv("PAWL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	p := &post{bed: setup(t), random: rand.New(rand.NewPCG(seed, 0)), discarded: map[string]bool{}, refused: map[string]bool{}, calls: map[string]int{}}
	p.form.handle = p.handle
	set(&p.form)
	p.form.MaxAttempts, p.form.LanePolicy = 2, job.LaneSkip
	p.config.Key, p.config.Fingerprint = p.key, p.print
	kinds := letterKinds
	switch form {
	case "source": // retried from the source
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "attempts" || kind == "crash" })
	case "leased":
		kinds = append(slices.Clone(kinds), "doubt")
		p.form.work = p.work
	case "gate":
		kinds = append(slices.Clone(kinds), "invalid gate", "full")
		first := int64(1)
		p.form.SequenceGate = &consumer.SequenceGate{Mode: consumer.GateStrict, First: &first, HoldLimit: 1, HoldTimeout: time.Hour, Of: p.number}
	}
	for _, kind := range kinds {
		for n := range 3 {
			p.all = append(p.all, p.letters(kind, fmt.Sprintf("%s %d", kind, n))...)
		}
	}
	// Deliveries sent more than two hours ago may be forgotten.
	if _, err := p.asks.Exec(t.Context(), "insert into pawl.forgotten (consumer, until) values ('orders', clock_timestamp() - interval '2 hours')"); err != nil {
		t.Fatal(err)
	}
	return p
}

// letters are the deliveries of one intent, usually one.
func (p *post) letters(kind, intent string) []pawl.Delivery {
	d := pawl.Delivery{Key: intent, Payload: []byte("body of " + intent), Attributes: map[string]string{"kind": kind, "intent": intent}}
	if p.random.IntN(3) == 0 {
		d.OrderingKey = fmt.Sprintf("account %d", p.random.IntN(3))
	}
	other := d
	switch kind {
	case "invalid size":
		d.Payload = []byte(strings.Repeat("x", 300))
	case "invalid lane":
		d.OrderingKey = "no text \xff"
	case "mismatch":
		other.Payload = []byte("other body of " + intent)
		return []pawl.Delivery{d, other}
	case "invalid other": // its key is another's until the configuration is corrected
		other.Payload, other.Attributes = []byte("other body of "+intent), map[string]string{"kind": "fine", "intent": intent}
		return []pawl.Delivery{d, other}
	case "stale":
		d.ProducedAt = time.Now().Add(-3 * time.Hour)
	case "semantic":
		d.SemanticKey, other.SemanticKey, other.Key = intent, intent, "other key of "+intent
		return []pawl.Delivery{d, other}
	case "full": // the first number comes last
		return []pawl.Delivery{numberedOf(d, 2), numberedOf(d, 3), numberedOf(d, 1)}
	case "invalid gate":
		return []pawl.Delivery{numberedOf(d, 1)}
	}
	return []pawl.Delivery{d}
}

func numberedOf(d pawl.Delivery, n int) pawl.Delivery {
	d.Key, d.Payload, d.OrderingKey = fmt.Sprintf("%s/%d", d.Key, n), fmt.Appendf(nil, "number %d", n), ""
	d.Attributes = map[string]string{"kind": d.Attributes["kind"], "intent": d.Attributes["intent"], "number": strconv.Itoa(n)}
	return d
}

func (p *post) key(d pawl.Delivery) string {
	switch kind := d.Attributes["kind"]; {
	case p.corrected:
	case kind == "invalid key", kind == "invalid other":
		return ""
	case kind == "invalid panic":
		panic("no such attribute")
	}
	return "key/" + d.Key // adds the prefix to the source's key once
}

func (p *post) print(d pawl.Delivery) (pawl.Fingerprint, error) {
	if d.Attributes["kind"] == "invalid print" && !p.corrected {
		return pawl.Fingerprint{}, errors.New("not of our schema")
	}
	return pawl.FingerprintOf(d.Payload), nil
}

func (p *post) number(d pawl.Delivery) (resource string, seq int64, err error) {
	switch {
	case d.Attributes["number"] == "":
		return "", 0, nil
	case d.Attributes["kind"] == "invalid gate" && !p.corrected:
		return "", 0, errors.New("no number")
	}
	seq, err = strconv.ParseInt(d.Attributes["number"], 10, 64)
	return d.Attributes["intent"], seq, err
}

func (p *post) handle(ctx context.Context, tx pgx.Tx, d pawl.Delivery) error {
	if _, err := tx.Exec(ctx, "insert into effect values ($1, $2)", d.Attributes["intent"], string(d.Payload)); err != nil {
		return err
	}
	return p.failure(d)
}

func (p *post) failure(d pawl.Delivery) error {
	switch kind := d.Attributes["kind"]; {
	case p.corrected:
	case kind == "final", kind == "semantic" && strings.HasSuffix(d.Key, "0"):
		return pawl.Final(errors.New("no such customer"))
	case kind == "attempts":
		return errors.New("not now")
	case kind == "crash":
		return job.RetryAfter(time.Hour, errors.New("its process dies"))
	}
	return nil
}

// work is the handler without a transaction. The calls of the kind doubt have an unknown outcome.
func (p *post) work(ctx context.Context, a *consumer.Attempt[[]byte]) error {
	intent := a.Attributes["intent"]
	if _, err := step.Run(ctx, p.pool, a, step.Step{Name: "call", Request: a.Payload, Recovery: step.AtMostOnce()}, func(context.Context, step.Call) (string, error) {
		p.mu.Lock()
		p.calls[intent+string(a.Payload)]++
		p.mu.Unlock()
		if a.Attributes["kind"] == "doubt" {
			return "", errors.New("no answer")
		}
		return "done", nil
	}); err != nil {
		return err
	}
	if err := p.failure(a.Delivery); err != nil {
		return err
	}
	return a.Commit(ctx, func(ctx context.Context, tx pgx.Tx) error { return p.handle(ctx, tx, a.Delivery) })
}

// send sends each delivery up to so many times, in random order except for the numbers of one gate.
func (p *post) send(most int, ds ...pawl.Delivery) {
	var all []pawl.Delivery
	for _, d := range ds {
		for range 1 + p.random.IntN(most) {
			d.MessageID = fmt.Sprintf("message %d", p.random.Uint64())
			all = append(all, d)
		}
	}
	p.random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	p.source.Send(all...)
}

// some returns random deliveries.
func (p *post) some() (ds []pawl.Delivery) {
	for _, d := range p.all {
		if p.random.IntN(2) == 0 {
			ds = append(ds, d)
		}
	}
	return ds
}

// consume runs the consumer until only an operator can do more.
func (p *post) consume() {
	p.Helper()
	p.form.MaxPayload = 200
	if p.corrected {
		p.form.MaxPayload = 0
	}
	stop := p.start()
	p.until("nothing is to be done", func() bool {
		return p.source.Open() == 0 && p.count(`select count(*) from pawl.job where status = 'processing'
		   or status = 'pending' and available_at < clock_timestamp() + interval '5 minutes'`) == 0
	})
	stop()
	p.bury()
}

// bury dead-letters deliveries as if their process had died too often, by changing their rows.
func (p *post) bury() {
	if _, err := p.asks.Exec(p.Context(), `with dead as (
  update pawl.job as j
     set status = 'dead_letter', crashes = 4, crashes_alone = 4,
         last_errors = j.last_errors || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempts, 'code', 'crash', 'error', 'its process died'))
   where j.headers -> 'attributes' ->> 'kind' = 'crash' and j.status = 'pending'
  returning j.id)
select pawl_v1._lanes_leave(array_agg(d.id)) from dead as d`); err != nil {
		p.Fatal(err)
	}
}

// operate applies a random verb to the dead letters, one by one or all together.
func (p *post) operate() {
	switch p.random.IntN(4) {
	case 0:
		p.retryAll(true)
		return
	case 1:
		p.retryAll(false)
		return
	}
	letters, err := ops.Jobs{Queue: "inbox/orders", Statuses: []ops.Status{ops.StatusDeadLetter}, Limit: 1000}.List(p.Context(), p.asks)
	if err != nil {
		p.Fatal(err)
	}
	for _, l := range letters.Rows {
		var err error
		switch p.random.IntN(5) {
		case 0, 1:
			_, err = l.Ref().Retry(p.Context(), p.asks, operator)
		case 2:
			p.discard(l)
		case 3:
			var key string
			if err = p.asks.QueryRow(p.Context(), "select i.key from pawl.inbox as i where i.job_id = $1 and i.processed_at is null", l.ID).Scan(&key); err == nil {
				_, err = ops.DeliveryRef{Consumer: "orders", Key: key}.Replay(p.Context(), p.asks, operator)
			}
		}
		if err != nil {
			p.Fatal(err)
		}
	}
	p.settle()
}

func (p *post) discard(l ops.Job) {
	l, err := l.Ref().Get(p.Context(), p.asks)
	if err != nil {
		p.Fatal(err)
	}
	result, err := l.Ref().Discard(p.Context(), p.asks, operator)
	if err != nil {
		p.Fatal(err)
	}
	if result.Outcome != ops.Discarded {
		return
	}
	p.discards++
	if !strings.HasPrefix(l.Headers["pawl-inbox-key"].(string), "pawl/invalid/") {
		attributes := l.Headers["attributes"].(map[string]any)
		p.discarded[attributes["intent"].(string)+string(l.Payload)] = true
		if attributes["kind"] == "full" {
			for n := range 3 {
				p.discarded[fmt.Sprintf("%snumber %d", attributes["intent"], n+1)] = true
			}
		}
	}
}

// settle gives random verdicts on the calls of unknown outcome.
func (p *post) settle() {
	steps, err := ops.Steps{Statuses: []ops.Status{ops.StatusUnknown}}.List(p.Context(), p.asks)
	if err != nil {
		p.Fatal(err)
	}
	for _, s := range steps.Rows {
		v := ops.StepVerdict{Outcome: []string{"executed", "refused"}[p.random.IntN(2)]}
		result, err := s.Ref().Settle(p.Context(), p.asks, v, operator)
		if err != nil {
			p.Fatal(err)
		}
		if result.Outcome == ops.Settled && v.Outcome == "refused" {
			p.refused[strings.TrimPrefix(s.Key, "key/")] = true
		}
	}
}

// judge compares the effects, the inbox and the jobs.
func (p *post) judge() {
	p.Helper()
	for what, query := range map[string]string{
		"effects that are there twice": "select count(*) from (select from effect group by key, body having count(*) > 1) as d",
		"jobs that the inbox does not know": `select count(*) from pawl.job as j where not exists (
		   select from pawl.inbox as i where i.consumer = 'orders' and i.key = j.headers ->> 'pawl-inbox-key' and i.job_id = j.id and i.processed_at is null)`,
	} {
		if n := p.count(query); n != 0 {
			p.Errorf("%d %s", n, what)
		}
	}
	if n := p.count("select count(*) from pawl.inbox as i where i.processed_at is null and i.key not like 'pawl/working/%' and not exists (select from pawl.job as j where j.id = i.job_id)"); n != p.discards {
		p.Errorf("%d deliveries have neither a job nor an end, %d were discarded", n, p.discards)
	}
	for call, n := range p.calls {
		if n > 1 {
			p.Errorf("%d calls of %s", n, call)
		}
	}
	if n := p.count(`select count(*) from effect as e where e.key !~ '^(mismatch|semantic|full|invalid gate|invalid other)'
	   and not exists (select from pawl.inbox as i where i.consumer = 'orders' and i.key = 'key/' || e.key and i.processed_at is not null)`); n != 0 {
		p.Errorf("%d took effect, and their keys are not in the inbox", n)
	}
}

// judgeEnd checks that every delivery took effect, unless it was discarded or refused.
func (p *post) judgeEnd() {
	p.Helper()
	rows, err := p.asks.Query(p.Context(), "select j.headers -> 'attributes' ->> 'intent' from pawl.job as j where j.headers -> 'attributes' ->> 'kind' <> all ('{invalid lane,doubt}')")
	if err != nil {
		p.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		p.Fatal(err)
	}
	for _, intent := range left {
		// otherwise a number before it was discarded, and it is held forever
		if !p.discarded[intent+"number 1"] {
			p.Errorf("a job of %s is left, although all was retried", intent)
		}
	}
	for _, d := range p.all {
		intent := d.Attributes["intent"]
		if p.discarded[intent+string(d.Payload)] || p.refused[intent] || d.Attributes["kind"] == "invalid lane" {
			continue
		}
		var n int
		if err := p.asks.QueryRow(p.Context(), "select count(*) from effect where key = $1 and body = $2", intent, string(d.Payload)).Scan(&n); err != nil || n != 1 {
			p.Errorf("%d effects of %s, %v; want 1", n, d.Key, err)
		}
	}
}
