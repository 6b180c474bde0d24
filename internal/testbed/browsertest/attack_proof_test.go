//go:build proof

package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/pawltest"
)

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// No page lets a browser execute stored text as markup.
func TestAttack_StoredMarkup(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t)
	pool := connect(t, database)
	attacks := []string{`"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(2)>`, `</title></style></script><script>alert(3)</script>`, `javascript:alert(4)`, `{{7*7}}<iframe srcdoc="<script>parent.alert(5)</script>">`}
	for _, text := range attacks {
		for _, statement := range []string{
			`insert into pawl.job (queue, kind, payload, headers, status, attempts, last_errors) values ($1::text, $1::text, convert_to($1::text, 'UTF8'), jsonb_build_object('pawl-key', $1::text), 'dead_letter', 1,
  jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', 1, 'code', 'x', 'error', $1::text, 'worker', $1::text)))`,
			`insert into pawl.worker (name) values ($1::text)`,
			`insert into pawl.lane (queue, name) values ($1::text, $1::text)`,
			`insert into pawl.consumer (name) values ($1::text)`,
			`insert into pawl.audit (actor, verb, target, reason, before) values ($1::text, 'job_retry', $1::text, $1::text, '{}')`,
			`insert into pawl.command (scope, key, hash, expires_at, status, claimed_by) values ($1::text, $1::text, sha256('x'), clock_timestamp() + interval '1 day', 'unknown', $1::text)`,
			`insert into pawl.inbox (consumer, key, hash, processed_at) values ($1::text, $1::text, sha256('x'), clock_timestamp())`,
			`insert into pawl.rollup (span, at, kind, source, scope, name, value) values ('minute', date_trunc('minute', clock_timestamp()) - interval '1 minute', 'count', 'queue', $1::text, 'succeeded', 1)`,
		} {
			if _, err := pool.Exec(t.Context(), statement, text); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	login, root := serve(t, database, "--payloads")
	b := open(t, looks[0], login, root)
	for _, address := range []string{"", "queues", "jobs", "dead-letters", "lanes", "consumers", "commands", "workers", "audit", "doctor", "job?id=1", "payload?id=1"} {
		b.visit(address)
		b.quiet(address)
	}
	for _, text := range attacks {
		for _, address := range []string{"story?key=", "queue?name=", "consumer?name=", "jobs?queue=", "jobs?after=", "lane?queue=q&name=", "delivery?consumer=c&key=", "do/queue_pause?name=", "?charts="} {
			b.visit(address + url.QueryEscape(text))
			b.quiet(address + text)
		}
	}
}

// Another site can neither act for a logged-in operator nor show the dashboard in a frame.
func TestAttack_OtherSites(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t, "insert into pawl.job (queue, kind, payload, status) values ('q', 'k', '', 'dead_letter')")
	login, root := serve(t, database)
	var body string
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(evil.Close)
	there := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	b := open(t, looks[0], login, root)

	body = `<form method="post" action="` + root + `do/job_discard"><input name="id" value="1"><input name="fence" value="0"><input name="reason" value="ha"><input name="mode" value="execute"><button>win</button></form>`
	b.visit(there)
	b.click("win")
	body = `<script>fetch("` + root + `do/job_discard", {method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({id: "1", fence: "0", reason: "ha", mode: "execute"})}).catch(() => 0).then(() => document.title = "sent")</script>`
	b.visit(there)
	b.title("sent")
	body = `<iframe src="` + root + `"></iframe><script>addEventListener("load", () => document.title = "framed")</script>`
	b.visit(there)
	b.title("framed")
	b.hears("frame-ancestors")
	var left int
	if err := connect(t, database).QueryRow(t.Context(), "select count(*) from pawl.job as j where j.status = 'dead_letter'").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d jobs are left (%v): another site discarded one", left, err)
	}
	b.visit("") // the session is still valid
	b.reads(`1\s+dead letters`)
}

// hears waits until the browser has reported a text.
func (b *browser) hears(part string) {
	b.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		b.mu.Lock()
		all := strings.Join(b.troubles, "\n")
		b.mu.Unlock()
		if strings.Contains(all, part) {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the browser reported no %q within %v, but %q", part, limit, all)
		}
	}
}

// title waits for the title of the page.
func (b *browser) title(want string) {
	b.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		got := ask(b, chromedp.Title())
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the title is %q, want %q", got, want)
		}
	}
}
