package dashboard_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/testbed/pgtest/hostile"
	"github.com/pawl-go/pawl/schema"
)

// attack is a hostile text.
const attack = `"><svg onload=alert(1)>'{{.}}</script><script>alert(2)</script>&amp;` + "\u202e\x01"

// fill inserts one row of each kind with hostile texts.
func (b *bed) fill() {
	b.Helper()
	b.exec(`insert into pawl.worker (name, seen_at) values ($1::text, clock_timestamp()), ($1::text || '2', clock_timestamp() - interval '1 hour')`, attack)
	b.exec(`insert into pawl.lane (queue, name) values ($1::text, $1::text)`, attack)
	b.exec(`insert into pawl.job (queue, kind, payload, headers, status, lane_id, position, lane_head, last_errors, attempts)
select $1::text, $1::text, convert_to($1::text, 'UTF8'), jsonb_build_object('pawl-key', $1::text, 'ce-id', $1::text, 'ce-type', $1::text), s.status, case s.status when 'dead_letter' then l.id end, case s.status when 'dead_letter' then 1 end,
       s.status = 'dead_letter', jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', 1, 'code', 'P4002', 'error', $1::text)), 1
  from pawl.lane as l, unnest(array['pending', 'dead_letter', 'unknown', 'cancelled']) as s (status)`, attack)
	b.exec(`insert into pawl.job (queue, kind, payload, headers) values ('outbox/' || $1::text, 'pawl.event', '{}', jsonb_build_object('ce-id', $1::text, 'ce-type', $1::text))`, attack)
	b.exec(`insert into pawl.command (scope, key, hash, expires_at, status, lease_expires_at, claimed_by) values ($1::text, $1::text, sha256('x'), clock_timestamp() + interval '1 day', 'unknown', clock_timestamp(), $1::text)`, attack)
	b.exec(`insert into pawl.step (scope, key, step, hash, expires_at, status, recovery, provider, provider_key, failure_message)
values ($1::text, $1::text, $1::text, sha256('x'), clock_timestamp() + interval '1 day', 'unknown', 'keyed', $1::text, $1::text, $1::text)`, attack)
	b.exec(`insert into pawl.step_call (fence, scope, key, step, probe, not_after, detail) values (1, $1::text, $1::text, $1::text, false, clock_timestamp(), jsonb_build_object('error', $1::text, $1::text, $1::text))`, attack)
	b.exec(`insert into pawl.audit (actor, verb, target, reason, before) values ($1::text, 'job_retry', 'job 1', $1::text, '{}')`, attack)
	b.exec(`insert into pawl.queue (name, mode) values ($1::text, 'paused')`, attack)
	b.exec(`insert into pawl.schedule (name, every_ms, queue, kind, payload) values ($1::text, 1000, $1::text, $1::text, '')`, attack)
	b.exec(`insert into pawl.sequence_gate (consumer, resource, last) values ($1::text, $1::text, 3)`, attack)
	b.exec(`insert into pawl.consumer (name) values ($1::text)`, attack)
	b.exec(`insert into pawl.inbox (consumer, key, hash, processed_at) values ($1::text, $1::text, sha256('x'), clock_timestamp())`, attack)
	b.exec(`insert into pawl.rollup (span, at, kind, source, scope, name, value)
select s.span, date_trunc(s.span, now(), 'UTC') - ('1 ' || s.span)::interval, n.kind, n.source, n.scope, n.name, 3
  from (values ('minute'), ('hour')) as s (span)
 cross join (values ('count', 'queue', $1::text, 'succeeded'), ('count', 'consumer', $1::text, 'succeeded'), ('level', 'queue', '', 'workers'), ('level', 'queue', $1::text, 'due')) as n (kind, source, scope, name)`, attack)
}

var (
	addressOf = regexp.MustCompile(`(?:href|src|class="filter" action|class="search" action)="([^"]*)"`)
	tag       = regexp.MustCompile(`<[a-zA-Z!/][^>]*>`)
	quoted    = regexp.MustCompile(`"[^"]*"`)
	risky     = regexp.MustCompile(`(?i)^<script>|\son\w+=|\sstyle=|'`)
)

// markup returns the parts of a page that a browser could execute.
func markup(body string) string {
	for _, one := range tag.FindAllString(body, -1) {
		if bare := quoted.ReplaceAllString(one, ""); risky.MatchString(bare) || strings.Contains(strings.ToLower(one), "\"javascript:") {
			return one
		}
	}
	shown := tag.ReplaceAllString(body, "")
	if i := strings.IndexAny(shown, "\u202e\x01"); i >= 0 {
		return shown[max(0, i-20) : i+5]
	}
	return ""
}

// Every linked page answers, at any mount path. Its links stay below that path, and no stored text
// becomes markup.
func TestPages_AllLinksLeadToPages(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/p", "/a/b"} {
		t.Run("under "+path, func(t *testing.T) {
			t.Parallel()
			b := setup(t, path, nil)
			b.fill()
			b.crawl(60)
		})
	}
}

// A request for the mount path without a slash is redirected to the one with a slash.
func TestPages_WithoutTheSlash(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/p": "p/", "/a/b": "b/"} {
		b := setup(t, path, nil)
		if a := b.get(strings.TrimSuffix(b.url, "/") + "?x=/y"); a.status != http.StatusSeeOther || a.header.Get("Location") != want {
			t.Errorf("%s: %d %q", path, a.status, a.header.Get("Location"))
		}
	}
}

// The pages need only the rights of pawl_reader, and call no function that others created in the
// database.
func TestPages_OfAReaderCallNothingOfOthers(t *testing.T) {
	t.Parallel()
	for name, path := range hostile.Paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "", func(c *dashboard.Config) { c.Pool, c.Operators = asReader(t, c.Pool, path), nil })
			b.fill()
			b.exec(schema.Roles())
			conn, err := b.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			for _, plant := range []func(context.Context, *pgx.Conn) error{hostile.Plant, hostile.Overload, hostile.Deny} {
				if err := plant(t.Context(), conn.Conn()); err != nil {
					t.Fatal(err)
				}
			}
			b.crawl(50)
			if runs, err := hostile.Runs(t.Context(), conn.Conn()); err != nil || runs != 0 {
				t.Errorf("planted objects ran %d times (%v)", runs, err)
			}
		})
	}
}

// asReader returns a pool on the same database with the role pawl_reader.
func asReader(t *testing.T, pool *pgxpool.Pool, path string) *pgxpool.Pool {
	t.Helper()
	c := pool.Config()
	c.MinConns = 0
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set search_path = "+path+"; set role pawl_reader")
		return err
	}
	reader, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return reader
}

// crawl follows all links from the overview on.
func (b *bed) crawl(least int) {
	b.Helper()
	base, err := url.Parse(b.url)
	if err != nil {
		b.Fatal(err)
	}
	seen, from := map[string]bool{}, map[string]string{}
	for todo := []*url.URL{base}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		a := b.get(at.String())
		if a.status != http.StatusOK {
			b.Errorf("%s, from %s: %d\n%s", at, from[at.String()], a.status, a.body)
			continue
		}
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		if found := markup(a.body); found != "" {
			b.Errorf("%s holds %q", at, found)
		}
		if strings.Contains(a.body, `class="trouble"`) {
			b.Errorf("%s tells of trouble:\n%s", at, a.body)
		}
		for _, m := range addressOf.FindAllStringSubmatch(a.body, -1) {
			next, err := at.Parse(html.UnescapeString(m[1]))
			if err != nil {
				b.Fatalf("%s has the address %q: %v", at, m[1], err)
			}
			if next.Host != base.Host || !strings.HasPrefix(next.Path, base.Path) {
				b.Errorf("%s leads to %s", at, next)
				continue
			}
			if next.Fragment = ""; !seen[next.String()] {
				seen[next.String()], from[next.String()] = true, at.String()
				todo = append(todo, next)
			}
		}
	}
	if len(seen) < least {
		b.Errorf("only %d addresses were found", len(seen))
	}
}
