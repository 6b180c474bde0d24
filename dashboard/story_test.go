package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The picture has a mark for each moment with a time, and a row for each object.
func TestStory_PictureAndListSayTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	b.exec(`insert into pawl.worker (name) values ('w2')`)
	b.exec(`insert into pawl.job (queue, kind, payload, headers, status, claimed_by, fence, attempts, created_at, last_errors)
select 'inbox/orders', 'delivery', '', '{"pawl-key": "order-17", "pawl-inbox-key": "order-17"}', 'processing', w.id, 2, 2, clock_timestamp() - interval '1 minute',
       jsonb_build_array(jsonb_build_object('at', clock_timestamp() - interval '20 seconds', 'attempt', 1, 'code', 'crash', 'error', 'the worker died or froze past its lease',
         'fence', 1, 'worker', 'w1', 'lease_ended_at', clock_timestamp() - interval '21 seconds'))
  from pawl.worker as w`)
	b.exec(`insert into pawl.inbox (consumer, key, hash, received_at, job_id) select 'orders', 'order-17', sha256('x'), j.created_at - interval '1 second', j.id from pawl.job as j`)
	b.exec(`insert into pawl.step (scope, key, step, hash, created_at, expires_at, status, recovery, provider, provider_key, fence)
select 'inbox/orders', 'order-17', 'charge', sha256('x'), clock_timestamp() - interval '15 seconds', clock_timestamp() + interval '1 day', 'succeeded', 'keyed', 'psp', 'k', 9`)
	b.exec(`insert into pawl.step_call (fence, scope, key, step, probe, started_at, not_after, ended_at, outcome)
values (9, 'inbox/orders', 'order-17', 'charge', false, clock_timestamp() - interval '14 seconds', clock_timestamp(), clock_timestamp() - interval '13 seconds', 'executed')`)
	b.exec(`insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'orders', 'order-17', sha256('x'), j.id, clock_timestamp() - interval '2 minutes', clock_timestamp() + interval '1 day' from pawl.job as j`)
	b.exec(`insert into pawl.stale_write (kind, scope, key, fence, worker, at) select 'job', j.queue, j.id::text, 1, 'w1', clock_timestamp() - interval '10 seconds' from pawl.job as j`)
	a := b.get("story?key=order-17")
	list := a.body[strings.Index(a.body, `<ol class="story">`):]
	items := strings.Count(list, "<li class=") - strings.Count(list, `<li class="now"`) - strings.Count(list, `<span class="when">–`)
	if marks := strings.Count(a.body, "<path class="); marks != items || marks < 7 {
		t.Errorf("%d marks and %d moments:\n%s", marks, items, a.body)
	}
	if i := strings.Index(list, "stale_write_refused"); i < 0 || !strings.Contains(list[strings.LastIndex(list[:i], "<li"):i], `<li class="odd"`) {
		t.Errorf("a refusal does not stand out:\n%s", list)
	}
	for _, want := range []string{"delivery orders order-17<", "job inbox/orders", "step inbox/orders order-17", "lease_ended", "stale_write_refused", `class="call"`, `class="lease"`, "its lease runs for another", `<line class="now"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the story lacks %q:\n%s", want, a.body)
		}
	}
}

var (
	markAt = regexp.MustCompile(`<svg x="([\d.]+)%" y="[\d.]+"><path class="`)
	timeAt = regexp.MustCompile(`<text class="time \w*" x="([\d.]+)%" y="33">([^<]*)</text>`)
)

// places returns the places of the marks or times of a picture, in percent.
func places(t *testing.T, of *regexp.Regexp, body string) (all []float64) {
	t.Helper()
	for _, m := range of.FindAllStringSubmatch(body, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// The marks of a picture stand in the order of time, within its width and apart. A gap that is
// longer than drawn says so. Times do not overlap. Of many moments, a picture has the newest.
func TestStory_PictureIsToScale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seconds []float64 // before now, of calls
		marks   int
		cut     bool
	}{
		"two":                   {[]float64{20, 10}, 3, false},
		"at once":               {[]float64{10, 10, 10, 10}, 5, false},
		"a burst after a week":  {[]float64{604800, 3, 2.99, 2.98, 2.97}, 6, true},
		"a second and a minute": {[]float64{45, 10, 9}, 4, false},
		"three hundred":         {nil, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.seconds == nil {
				for i := range 300 {
					c.seconds = append(c.seconds, float64(3010-10*i))
				}
			}
			b := setup(t, "", nil)
			now := one[time.Time](b, "select clock_timestamp()")
			b.exec(`insert into pawl.step (scope, key, step, hash, created_at, updated_at, expires_at, status, recovery, provider, provider_key)
select 'q', 'k', 's', sha256('x'), $2::timestamptz - make_interval(secs => $1), $2, $2::timestamptz + interval '1 day', 'unknown', 'keyed', 'p', 'k'`, c.seconds[0], now)
			b.exec(`insert into pawl.step_call (fence, scope, key, step, probe, started_at, not_after)
select 100 + c.n, 'q', 'k', 's', false, $2::timestamptz - make_interval(secs => c.ago), $2 from unnest($1::float8[]) with ordinality as c (ago, n)`, c.seconds, now)
			body := b.get("story?key=k").body
			at := places(t, markAt, body)
			if len(at) < c.marks || len(at) > 60 || at[0] <= 0 || at[len(at)-1] >= 100 {
				t.Fatalf("marks at %v", at)
			}
			if titles := regexp.MustCompile(`<title>([^<]*)</title></path>`).FindAllStringSubmatch(body, -1); !strings.HasSuffix(titles[len(titles)-1][1], " unknown") {
				t.Errorf("the newest moment has no mark: %q", titles[len(titles)-1])
			}
			var gaps []float64
			for i := range at[1:] {
				gaps = append(gaps, at[i+1]-at[i])
			}
			if slices.Min(gaps) < 0.9*min(3.5, 60/float64(len(gaps))) {
				t.Errorf("marks hide each other: %v", gaps)
			}
			if left := strings.Contains(body, "are in the list only"); left != (len(c.seconds) > 60) {
				t.Errorf("%d marks of %d, and it says so: %v", len(at), len(c.seconds), left)
			}
			if cut := strings.Contains(body, "longer than drawn"); cut != c.cut {
				t.Errorf("cut short: %v", cut)
			}
			times := places(t, timeAt, body)
			slices.Sort(times)
			for i := range times[1:] {
				if times[i+1]-times[i] < 9 {
					t.Errorf("times overlap: %v", times)
				}
			}
			if times[0] != at[0] {
				t.Errorf("the first moment has no time: %v of %v", times, at)
			}
		})
	}
}

// A key is searched octet by octet. Spaces around it are cut off only if there is no such key. The
// command on the page takes no key for a flag.
func TestStory_OfTheKeyAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for _, key := range []string{" a ", "b", " ", "-c", "\td\n"} {
		b.exec(`insert into pawl.command (scope, key, hash, expires_at, status) values ('s', $1::text, sha256('x'), clock_timestamp() + interval '1 day', 'succeeded')`, key)
	}
	for key, known := range map[string]bool{" a ": true, "b": true, " b\n": true, " ": true, "a": false, "  a": false, "-c": true, "\td\n": true, "d": false} {
		for _, scope := range []string{"", "s"} {
			a := b.get("story?scope=" + scope + "&key=" + url.QueryEscape(key))
			if a.status != http.StatusOK || strings.Contains(a.body, "Nothing is known") == known {
				t.Errorf("key %q of scope %q: %d %s", key, scope, a.status, a.body)
			}
		}
	}
	if a := b.get("story?key=-c&scope=-s"); !strings.Contains(a.body, "pawl explain --scope -s -- -c<") {
		t.Error(a.body)
	}
}

// The page of a step leads to its owner: the job, the command, or the story of the row of a guard.
func TestStep_LeadsToItsOwner(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	for scope, job := range map[string]any{"guard/public.orders": nil, "command/web": nil, "job/mail": 7} {
		b.exec(`insert into pawl.step (scope, key, step, hash, expires_at, recovery, provider_key, job_id)
values ($1::text, '17', 'charge', sha256('x'), clock_timestamp() + interval '1 day', 'keyed', 'k', $2::bigint)`, scope, job)
	}
	for scope, want := range map[string]string{"guard/public.orders": "story?key=17&amp;scope=guard%2Fpublic.orders", "command/web": "command?key=17&amp;scope=web", "job/mail": "job?id=7"} {
		if a := b.get("step?key=17&step=charge&scope=" + url.QueryEscape(scope)); a.status != http.StatusOK || !strings.Contains(a.body, want+`"`) {
			t.Errorf("%s has no link to %s: %d %s", scope, want, a.status, a.body)
		}
	}
	for _, scope := range []string{"guard/public.orders", "public.orders", "orders"} {
		if a := b.get("story?key=17&scope=" + url.QueryEscape(scope)); !strings.Contains(a.body, "step guard/public.orders 17 charge<") {
			t.Errorf("the story of 17 in %s lacks the step: %s", scope, a.body)
		}
	}
}
