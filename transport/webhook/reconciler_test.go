package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A gitHub implements GitHub's documented API. It sends each delivery once, lists all attempts in
// pages, shows payloads re-encoded, resends on request, and limits the rate.
type gitHub struct {
	t      *testing.T
	api    *httptest.Server
	sender sender
	hook   string // where it sends to
	form   bool   // the webhook is form-encoded

	mu       sync.Mutex
	attempts []attempt // oldest first
	limited  int       // number of requests still to be refused
	secondly bool      // by Retry-After instead of the primary limit
	calls    int
}

type attempt struct {
	ID          int64     `json:"id"`
	GUID        string    `json:"guid"`
	DeliveredAt time.Time `json:"delivered_at"`
	Redelivery  bool      `json:"redelivery"`
	Status      string    `json:"status"`
	StatusCode  int       `json:"status_code"`
	Event       string    `json:"event"`
	headers     map[string]string
	body        string
}

const gitHubToken = "ghs_of_the_test"

func newGitHub(t *testing.T, hook string) *gitHub {
	g := &gitHub{t: t, sender: senderNamed("github"), hook: hook}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /repos/o/r/hooks/7/deliveries", g.list)
	mux.HandleFunc("GET /repos/o/r/hooks/7/deliveries/{id}", g.show)
	mux.HandleFunc("POST /repos/o/r/hooks/7/deliveries/{id}/attempts", g.again)
	g.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.admit(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(g.api.Close)
	return g
}

func (g *gitHub) admit(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if r.Header.Get("Authorization") != "Bearer "+gitHubToken {
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
		return false
	}
	w.Header().Set("X-RateLimit-Limit", "5000")
	w.Header().Set("X-RateLimit-Remaining", "4999")
	if g.limited > 0 {
		g.limited--
		status := http.StatusForbidden
		if g.secondly {
			w.Header().Set("Retry-After", "1")
			status = http.StatusTooManyRequests
		} else {
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Second).Unix(), 10))
		}
		http.Error(w, `{"message":"API rate limit exceeded"}`, status)
		return false
	}
	return true
}

// deliver sends, once, an event that happened some time ago.
func (g *gitHub) deliver(guid, body string, ago time.Duration) int {
	return g.attempt(guid, body, time.Now().Add(-ago), false)
}

func (g *gitHub) attempt(guid, body string, at time.Time, again bool) int {
	h, err := g.sender.scheme(secrets(g.sender.value)...).Sign(guid, at, []byte(body))
	if err != nil {
		g.t.Error(err)
	}
	h.Set("Content-Type", "application/json")
	if g.form {
		h.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	h.Set("X-GitHub-Event", "push")
	a := attempt{GUID: guid, DeliveredAt: at, Redelivery: again, Event: "push", body: body, headers: map[string]string{}}
	for name := range h {
		a.headers[name] = h.Get(name)
	}
	if got, err := post(g.t.Context(), g.hook, h, body); err == nil {
		a.StatusCode, a.Status = got.status, http.StatusText(got.status)
	} else {
		a.Status = "failed to connect to host"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a.ID = int64(len(g.attempts) + 1)
	g.attempts = append(g.attempts, a)
	return a.StatusCode
}

func (g *gitHub) list(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	newest := slices.Clone(g.attempts)
	slices.SortStableFunc(newest, func(a, b attempt) int { return b.DeliveredAt.Compare(a.DeliveredAt) })
	from := 0
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		id, _ := strconv.ParseInt(strings.TrimPrefix(cursor, "v1_"), 10, 64)
		from = slices.IndexFunc(newest, func(a attempt) bool { return a.ID == id })
	}
	until := min(from+size, len(newest))
	if until < len(newest) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", fmt.Sprintf("v1_%d", newest[until].ID))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", fmt.Sprintf(`<%s%s>; rel="next", <%s/first>; rel="first"`, g.api.URL, next.String(), g.api.URL))
	}
	_ = json.NewEncoder(w).Encode(newest[from:until])
}

func (g *gitHub) find(r *http.Request) (attempt, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	i := slices.IndexFunc(g.attempts, func(a attempt) bool { return a.ID == id })
	if i < 0 {
		return attempt{}, false
	}
	return g.attempts[i], true
}

func (g *gitHub) show(w http.ResponseWriter, r *http.Request) {
	a, found := g.find(r)
	if !found {
		http.NotFound(w, r)
		return
	}
	var payload any
	if err := json.Unmarshal([]byte(a.body), &payload); err != nil {
		g.t.Error(err)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ") // not the octets that were sent
	_ = encoder.Encode(map[string]any{"id": a.ID, "guid": a.GUID, "request": map[string]any{"headers": a.headers, "payload": payload}})
}

func (g *gitHub) again(w http.ResponseWriter, r *http.Request) {
	a, found := g.find(r)
	if !found {
		http.NotFound(w, r)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	go g.attempt(a.GUID, a.body, time.Now(), true)
}

func (g *gitHub) ledger(change ...func(*webhook.GitHubConfig)) *webhook.GitHubDeliveries {
	g.t.Helper()
	c := webhook.GitHubConfig{API: g.api.URL, Hook: "repos/o/r/hooks/7", Token: func(context.Context) (string, error) { return gitHubToken, nil }}
	for _, f := range change {
		f(&c)
	}
	l, err := webhook.NewGitHubDeliveries(c)
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

func (b *bed) reconciler(l webhook.Ledger, change ...func(*webhook.ReconcilerConfig)) *webhook.Reconciler {
	b.Helper()
	c := webhook.ReconcilerConfig{Receiver: b.receiver, Ledger: l, Hooks: b.config.Hooks, Missing: func(ctx context.Context, keys []string) ([]string, error) {
		return inbox.Missing(ctx, b.pool, "hooks", keys)
	}}
	for _, f := range change {
		f(&c)
	}
	r, err := webhook.NewReconciler(c)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func push(n int) (guid, body string) {
	return fmt.Sprintf("guid-%d", n), fmt.Sprintf(`{"zen":"<é>","ref":"refs/heads/main","n":%d,"size":1.0}`, n)
}

// Deliveries that GitHub sent while the receiver was down, or that were answered 503, are found in
// its ledger and take effect once, however often a reconciler runs. If GitHub sends one again
// later, it is a duplicate, not a mismatch.
func TestT54_GapsAreClosed(t *testing.T) {
	t.Parallel()
	for _, resend := range []bool{false, true} {
		t.Run(fmt.Sprintf("resend %v", resend), func(t *testing.T) {
			t.Parallel()
			b := receive(t, "github")
			g := newGitHub(t, b.server.URL)
			const all, away = 250, 120 // more than a page
			for n := range all {
				guid, body := push(n)
				g.hook = b.server.URL
				if n < away {
					g.hook = "http://127.0.0.1:1/" // no server listens there
				}
				if status := g.deliver(guid, body, time.Hour-time.Duration(n)*time.Second); (status == http.StatusOK) != (n >= away) {
					t.Fatalf("delivery %d was answered %d", n, status)
				}
			}
			g.hook = b.server.URL
			b.wantEffects(all - away)
			g.limited = 2
			r := b.reconciler(g.ledger(), func(c *webhook.ReconcilerConfig) { c.Resend = resend })
			report, err := r.Once(t.Context())
			want := webhook.Report{Listed: all, Missing: away, Inserted: away}
			if resend {
				want.Inserted, want.Resent = 0, away
			}
			if err != nil || report != want {
				t.Errorf("%+v, %v, want %+v", report, err, want)
			}
			b.until("all took effect", func() bool { return b.count("select count(*) from effect") == all })
			if !resend { // sends again what was taken from the ledger
				guid, body := push(3)
				if status := g.deliver(guid, body, 0); status != http.StatusOK {
					t.Errorf("answered %d", status)
				}
			}
			again, err := r.Once(t.Context())
			if err != nil || again != (webhook.Report{Listed: all}) {
				t.Errorf("a second round: %+v, %v", again, err)
			}
			b.wantEffects(all)
			if got := b.letters(); got != "" {
				t.Errorf("dead letters: %s", got)
			}
			if n := b.counters.Count(pawl.EventWebhookMissing); n != away {
				t.Errorf("%d were told missing, want %d", n, away)
			}
			by := b.count("select count(*) from pawl.delivery as d where d.verified_by = 'github/ledger'")
			if resend && by != 0 || !resend && by != away {
				t.Errorf("%d came from the ledger", by)
			}
		})
	}
}

// Attempts younger than Grace or older than Lookback are left alone. A missing delivery that was
// answered 200 is counted as Accepted.
func TestReconciler_Bounds(t *testing.T) {
	t.Parallel()
	b := receive(t, "github")
	// Answers 200 and stores nothing.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer elsewhere.Close()
	g := newGitHub(t, elsewhere.URL)
	for n, ago := range []time.Duration{25 * time.Hour, 23 * time.Hour, time.Hour, time.Minute} {
		guid, body := push(n)
		g.deliver(guid, body, ago)
	}
	r := b.reconciler(g.ledger(), func(c *webhook.ReconcilerConfig) { c.Lookback = 24 * time.Hour })
	if report, err := r.Once(t.Context()); err != nil || report != (webhook.Report{Listed: 2, Missing: 2, Accepted: 2, Inserted: 2}) {
		t.Errorf("%+v, %v", report, err)
	}
	b.wantEffects(2)
}

// Attempts before Since, answered by an older system, are left alone.
func TestReconciler_Since(t *testing.T) {
	t.Parallel()
	b := receive(t, "github")
	// answers 200
	older := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer older.Close()
	g := newGitHub(t, older.URL)
	for n, ago := range []time.Duration{25 * time.Hour, 3 * time.Hour, time.Hour} {
		guid, body := push(n)
		g.deliver(guid, body, ago)
	}
	r := b.reconciler(g.ledger(), func(c *webhook.ReconcilerConfig) { c.Since = time.Now().Add(-2 * time.Hour) })
	if report, err := r.Once(t.Context()); err != nil || report != (webhook.Report{Listed: 1, Missing: 1, Accepted: 1, Inserted: 1}) {
		t.Errorf("%+v, %v", report, err)
	}
	b.wantEffects(1)
}

// A long MessageID is cut to 200 octets of whole characters in events and errors.
func TestReceiver_ALongMessageIDIsCut(t *testing.T) {
	t.Parallel()
	b := receive(t, "stripe", func(b *bed) {
		b.config.Hooks = pawl.Join(b.config.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			if len(e.MessageID) > 210 || !utf8.ValidString(e.MessageID) || e.Err != nil && len(e.Err.Error()) > 1000 {
				b.Errorf("%s: a message id of %d octets, an error of %v", e.Kind, len(e.MessageID), e.Err)
			}
		}})
		b.consumer.Hooks = b.config.Hooks
	})
	long := "é" + strings.Repeat("x", 198) + "é" + strings.Repeat("y", 5000)
	// Too long for a key: a dead letter.
	b.want(b.send("", event(long, "invoice.paid", "in_1")), http.StatusOK)
	if got := b.counters.Count(pawl.EventInvalid); got != 1 {
		b.Errorf("%d were invalid", got)
	}
	if n := b.count("select max(length(j.last_errors::text)) from pawl.job as j"); n > 1000 {
		b.Errorf("the dead letter's failures have %d characters", n)
	}
}

// A rate limit within LimitWait is waited for. Any other error ends the round.
func TestGitHubDeliveries_Limits(t *testing.T) {
	t.Parallel()
	b := receive(t, "github")
	g := newGitHub(t, b.server.URL)
	guid, body := push(1)
	g.deliver(guid, body, time.Hour)
	for _, secondly := range []bool{false, true} {
		g.limited, g.secondly = 1, secondly
		if report, err := b.reconciler(g.ledger()).Once(t.Context()); err != nil || report.Listed != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		g.limited = 1
		_, err := b.reconciler(g.ledger(func(c *webhook.GitHubConfig) { c.LimitWait = time.Millisecond })).Once(t.Context())
		if err == nil || !strings.Contains(err.Error(), "rate limit exceeded") {
			t.Errorf("got %v", err)
		}
	}
	_, err := b.reconciler(g.ledger(func(c *webhook.GitHubConfig) {
		c.Token = func(context.Context) (string, error) { return "another", nil }
	})).Once(t.Context())
	if err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "another") {
		t.Errorf("got %v", err)
	}
}

// The token is only sent to the API's host.
func TestGitHubDeliveries_NextPageElsewhere(t *testing.T) {
	t.Parallel()
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the next page was asked for elsewhere") }))
	defer thief.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", fmt.Sprintf(`<%s/x>; rel="next"`, thief.URL))
		fmt.Fprint(w, "[]")
	}))
	defer api.Close()
	g := &gitHub{t: t, api: api}
	for _, err := range g.ledger().Sent(t.Context(), time.Time{}) {
		if err == nil || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("got %v", err)
		}
	}
}

// A form-encoded payload in the ledger is an error; the other deliveries are passed on. If the
// database is down, the round ends.
func TestReconciler_Failures(t *testing.T) {
	t.Parallel()
	b := receive(t, "github")
	g := newGitHub(t, "http://127.0.0.1:1/")
	for n := range 3 {
		guid, body := push(n)
		g.form = n == 1
		g.deliver(guid, body, time.Hour)
	}
	report, err := b.reconciler(g.ledger()).Once(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set Resend") || report.Inserted != 2 || report.Missing != 3 {
		t.Errorf("%+v, %v", report, err)
	}
	b.wantEffects(2)
	b.stop()
	guid, body := push(9)
	g.form = false
	g.deliver(guid, body, time.Hour)
	if report, err := b.reconciler(g.ledger()).Once(t.Context()); !errors.Is(err, webhook.ErrUnavailable) || report.Inserted != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// NewReconciler refuses an invalid configuration, such as a Lookback beyond the Retention.
func TestNewReconciler_Refuses(t *testing.T) {
	t.Parallel()
	s := senderNamed("github")
	g := newGitHub(t, "")
	missing := func(context.Context, []string) ([]string, error) { return nil, nil }
	byID := newReceiver(t, s.verifier(t), webhook.ReceiverConfig{})
	byBody := newReceiver(t, s.verifier(t, func(c *webhook.Config) { c.Key = webhook.KeyBody() }), webhook.ReceiverConfig{})
	for part, c := range map[string]webhook.ReconcilerConfig{
		"required":              {Ledger: g.ledger(), Missing: missing},
		"KeyID":                 {Receiver: byBody, Ledger: g.ledger(), Missing: missing},
		"are remembered":        {Receiver: byID, Ledger: g.ledger(), Missing: missing, Lookback: 15 * 24 * time.Hour},
		"longer than the Lookb": {Receiver: byID, Ledger: g.ledger(), Missing: missing, Lookback: time.Minute, Grace: time.Hour},
		"shorter than 1s":       {Receiver: byID, Ledger: g.ledger(), Missing: missing, Every: time.Millisecond},
	} {
		_, err := webhook.NewReconciler(c)
		wantInvalid(t, err, part)
	}
	for _, c := range []webhook.GitHubConfig{{}, {Hook: "app/hook"}, {Hook: "app/hook", API: "github", Token: func(context.Context) (string, error) { return "", nil }}} {
		_, err := webhook.NewGitHubDeliveries(c)
		wantInvalid(t, err, "")
	}
}

// Run reconciles until its context is cancelled.
func TestReconciler_Run(t *testing.T) {
	t.Parallel()
	b := receiveOn(t, pawltest.URL(t, effects), "github", func(b *bed) { b.policy.Mode = consumer.StoreFirst })
	g := newGitHub(t, "http://127.0.0.1:1/")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	r := b.reconciler(g.ledger(), func(c *webhook.ReconcilerConfig) { c.Every = time.Second })
	go func() { ended <- r.Run(ctx) }()
	for n := range 2 {
		guid, body := push(n)
		g.deliver(guid, body, time.Hour)
		b.until("it took effect", func() bool { return b.count("select count(*) from effect") == n+1 })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
