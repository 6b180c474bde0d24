package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/webhook"
)

// An attack changes a valid request into one that every receiver must refuse.
type attack struct {
	name   string
	timed  bool // only for schemes with a timestamp
	status int
	reason webhook.Reason
	// change returns headers and body of a changed request signed at a time. It may sign again.
	change func(b *bed, s sender, at time.Time) (http.Header, string)
}

func signedAt(b *bed, s sender, at time.Time, body string, values ...string) http.Header {
	return s.sign(b.T, at, body, values...)
}

var attacks = []attack{
	{"forged: another secret", false, 401, webhook.ReasonSignatureMismatch, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body, s.other), body
	}},
	{"forged: no signature", false, 401, webhook.ReasonHeaderMissing, func(b *bed, s sender, at time.Time) (http.Header, string) {
		h := signedAt(b, s, at, body)
		h.Del(s.header)
		return h, body
	}},
	{"forged: another body", false, 401, webhook.ReasonSignatureMismatch, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body), strings.Replace(body, "1.10", "9.10", 1)
	}},
	{"stale", true, 401, webhook.ReasonTimestampStale, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at.Add(-5*time.Minute-2*time.Second), body), body
	}},
	{"future", true, 401, webhook.ReasonTimestampFuture, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at.Add(5*time.Minute+30*time.Second), body), body
	}},
	{"replayed under a new timestamp", true, 401, "", func(b *bed, s sender, at time.Time) (http.Header, string) {
		old, fresh := signedAt(b, s, at.Add(-time.Hour), body), at
		if s.time != "" {
			old.Set(s.time, fmt.Sprint(fresh.Unix()))
		} else {
			old.Set(s.header, strings.Replace(old.Get(s.header), fmt.Sprint(at.Add(-time.Hour).Unix()), fmt.Sprint(fresh.Unix()), 1))
		}
		return old, body
	}},
	{"truncated: the end is missing", false, 401, webhook.ReasonSignatureMismatch, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body), body[:len(body)-1]
	}},
	{"truncated: empty", false, 401, webhook.ReasonBodyEmpty, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body), ""
	}},
	{"re-encoded: spaces", false, 401, webhook.ReasonSignatureMismatch, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body), strings.ReplaceAll(body, ",", ", ")
	}},
	{"re-encoded: numbers", false, 401, webhook.ReasonSignatureMismatch, func(b *bed, s sender, at time.Time) (http.Header, string) {
		return signedAt(b, s, at, body), strings.Replace(body, "1.10", "1.1", 1)
	}},
	{"re-encoded: compressed", false, 415, webhook.ReasonContentEncoding, func(b *bed, s sender, at time.Time) (http.Header, string) {
		h := signedAt(b, s, at, body)
		h.Set("Content-Encoding", "gzip")
		return h, body
	}},
	{"oversized body", false, 413, webhook.ReasonBodyTooLarge, func(b *bed, s sender, at time.Time) (http.Header, string) {
		long := body[:len(body)-1] + `,"more":"` + strings.Repeat("x", 64<<10) + `"}`
		return signedAt(b, s, at, long), long
	}},
	{"oversized header", false, 431, webhook.ReasonHeaderTooLarge, func(b *bed, s sender, at time.Time) (http.Header, string) {
		h := signedAt(b, s, at, body)
		h.Set(s.header, h.Get(s.header)+strings.Repeat("0", 5000))
		return h, body
	}},
}

// Each attack over HTTP is refused with its status. The reason is in the events but not in the
// response, and no row is written. -v lists the attacks.
func TestReceiver_RefusesOverHTTP(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		var mu sync.Mutex
		var last error
		b := receive(t, s.name, func(b *bed) {
			b.verifier.MaxBody = 32 << 10
			b.verifier.Hooks = pawl.Join(b.verifier.Hooks, pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == pawl.EventWebhookRefused {
					last = e.Err
				}
			}})
		})
		for _, a := range attacks {
			if a.timed && !s.timed {
				continue
			}
			h, text := a.change(b, s, time.Now())
			b.want(b.post(h, text), a.status)
			mu.Lock()
			reason := webhook.ReasonOf(last)
			if last = nil; reason == "" || a.reason != "" && reason != a.reason {
				t.Errorf("%s: the reason is %q, want %q", a.name, reason, a.reason)
			}
			mu.Unlock()
			t.Logf("%-32s refused: %d %s", a.name, a.status, reason)
		}
		if n := b.count("select (select count(*) from pawl.inbox) + (select count(*) from pawl.job) + (select count(*) from pawl.delivery)"); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		b.want(b.send(s.id, body), http.StatusOK) // the unchanged request is accepted
		b.wantEffects(1)
	})
}

// A replay of a request has no effect.
func TestReceiver_ReplayHasNoEffect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		b := receive(t, s.name)
		h := b.sign(s.id, body)
		for range 5 {
			b.want(b.post(h, body), http.StatusOK)
		}
		b.wantEffects(1)
	})
}

// If the id is not signed, a second key from the body detects a replay under another id.
func TestReceiver_ReplayUnderAnotherID(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"github", "shopify"} {
		b := receive(t, name, func(b *bed) { b.verifier.SemanticKey = webhook.KeyBody() })
		h, ids := b.sign("first", body), map[string]string{"github": "X-Github-Delivery", "shopify": "X-Shopify-Webhook-Id"}
		for _, id := range []string{"first", "second", "third"} {
			h.Set(ids[name], id)
			b.want(b.post(h, body), http.StatusOK)
		}
		b.wantEffects(1)
	}
}

// A body that is cut off or does not come is refused, and the receiver continues.
func TestReceiver_CutOff(t *testing.T) {
	t.Parallel()
	b := receive(t, "stripe", func(b *bed) { b.verifier.ReadTimeout = 200 * time.Millisecond })
	for _, half := range []bool{true, false} {
		conn, err := net.Dial("tcp", b.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nStripe-Signature: %s\r\nContent-Length: %d\r\n\r\n%s", b.sign("", body).Get("Stripe-Signature"), len(body), body[:len(body)/2])
		if half {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if err == nil && response.StatusCode != http.StatusBadRequest && response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("answered %s", response.Status)
		}
	}
	b.until("both were refused", func() bool { return b.counters.Count(pawl.EventWebhookRefused) == 2 })
	b.want(b.send("", body), http.StatusOK)
	b.wantEffects(1)
}
