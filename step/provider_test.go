package step_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/step"
)

// A claim holds the facts of an entry of Providers that a program relies on.
type claim struct {
	header, field string
	maxKey        int
	memory        time.Duration
	note          string // an important part of the note
	host          string // of the vendor's page
}

const day = 24 * time.Hour

var claims = map[string]claim{
	"adyen":    {"Idempotency-Key", "", 64, day, `a day is relied on`, "docs.adyen.com"},
	"brevo":    {"-", "headers.idempotencyKey", 0, 15 * time.Minute, `must be a UUID`, "developers.brevo.com"},
	"paypal":   {"PayPal-Request-Id", "", 108, 6 * time.Hour, `Orders v2`, "developer.paypal.com"},
	"postmark": {"-", "", 0, 0, `no key`, "postmarkapp.com"},
	"resend":   {"Idempotency-Key", "", 256, day, `409`, "resend.com"},
	"ses":      {"-", "", 0, 0, `no key`, "docs.aws.amazon.com"},
	"square":   {"-", "idempotency_key", 45, 0, `no published memory`, "developer.squareup.com"},
	"stripe":   {"Idempotency-Key", "", 255, day, `24 hours old`, "docs.stripe.com"},
	"twilio":   {"-", "", 0, 0, `not idempotent`, "www.twilio.com"},
}

// Every entry claims what was read on its vendor's page: the place of the key, its length and its
// memory. If no memory is published, the note names a recovery that needs none.
func TestProviders(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range step.Providers() {
		names = append(names, p.Name)
		want, known := claims[p.Name]
		page, err := url.Parse(p.Page)
		if err != nil || page.Scheme != "https" {
			t.Errorf("%s: the page is %s, %v", p.Name, p.Page, err)
			continue
		}
		got := claim{p.Header, p.Field, p.MaxKey, p.Memory, regexp.MustCompile(cmp.Or(want.note, "^$")).FindString(p.Note), page.Host}
		if !known || got != want {
			t.Errorf("%s claims\n%+v, want\n%+v", p.Name, got, want)
		}
		if read, err := time.Parse(time.DateOnly, p.Read); err != nil || read.After(time.Now().Add(day)) {
			t.Errorf("%s: read on %s, %v", p.Name, p.Read, err)
		}
		recovery, ok := p.Recovery()
		if ok != (want.memory > 0) || ok && !reflect.DeepEqual(recovery, step.Keyed(want.memory)) {
			t.Errorf("%s: the recovery is %+v, %v", p.Name, recovery, ok)
		}
		if !ok && !regexp.MustCompile(`use Checked, or (AcceptDuplicates|Keyed)`).MatchString(p.Note) {
			t.Errorf("%s names no recovery: %s", p.Name, p.Note)
		}
		if named, ok := step.ProviderNamed(p.Name); !ok || named != p {
			t.Errorf("by its name %s is %+v, %v", p.Name, named, ok)
		}
	}
	if len(names) != len(claims) || !slices.IsSorted(names) {
		t.Errorf("the providers are %v", names)
	}
	if p, ok := step.ProviderNamed("unknown"); ok {
		t.Errorf("there is %+v", p)
	}
}

// A call of each provider carries the derived key, a UUID, only in the header of its entry.
func TestProviders_TheirKeysAreSent(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies())
	uuid := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for _, p := range step.Providers() {
		headers := make(chan http.Header, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
		recovery, ok := p.Recovery()
		if !ok {
			recovery = step.AtMostOnce()
		}
		var key string
		charge := step.Step{Name: "charge", Provider: p.Name, Recovery: recovery, Hooks: b.counters.Hooks()}
		_, err := step.Run(t.Context(), b.pool, b.claim(), charge, func(ctx context.Context, c step.Call) (any, error) {
			key = c.Key()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
			if err != nil {
				return nil, err
			}
			response, err := (&step.Transport{Header: p.Header}).RoundTrip(r)
			if err != nil {
				return nil, err
			}
			return nil, response.Body.Close()
		})
		server.Close()
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		var carry []string
		for name, values := range <-headers {
			if slices.Contains(values, key) {
				carry = append(carry, name)
			}
		}
		want := []string{http.CanonicalHeaderKey(p.Header)}
		if p.Header == "-" {
			want = nil
		}
		if !slices.Equal(carry, want) {
			t.Errorf("%s: the headers %q carry the key, want %q", p.Name, carry, want)
		}
		if !uuid.MatchString(key) || p.MaxKey != 0 && len(key) > p.MaxKey {
			t.Errorf("%s: the key is %s", p.Name, key)
		}
	}
	if n := b.count("select count(*) from pawl.step as s where s.status = 'succeeded' and (s.memory_ends_at is null) = (s.recovery <> 'keyed')"); n != len(claims) {
		t.Errorf("%d steps are recorded", n)
	}
}
