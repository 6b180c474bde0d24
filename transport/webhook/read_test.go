package webhook_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A verifying is a server with a verifier.
type verifying struct {
	*httptest.Server
	mu       sync.Mutex
	refused  []webhook.Reason
	verified []webhook.Verified
}

func open(t *testing.T, s sender, change ...func(*webhook.Config)) *verifying {
	t.Helper()
	d := &verifying{}
	hooks := pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if e.Kind != pawl.EventWebhookRefused || e.Op != "webhook.verify" || e.Scope == "" {
			t.Errorf("%+v", e)
		}
		d.refused = append(d.refused, webhook.ReasonOf(e.Err))
	}}
	v := s.verifier(t, append([]func(*webhook.Config){func(c *webhook.Config) { c.Hooks = hooks }}, change...)...)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := v.Read(w, r)
		if err != nil {
			webhook.Refuse(w, err)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.verified = append(d.verified, m)
		if err := r.Context().Err(); err != nil {
			t.Errorf("the context of a verified request has ended: %v", err)
		}
	}))
	t.Cleanup(d.Close)
	return d
}

// send returns the whole response without its Date.
func (d *verifying) send(t *testing.T, method string, h http.Header, body io.Reader) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	response, err := d.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Header.Del("Date")
	return fmt.Sprintf("%d %v %q", response.StatusCode, response.Header, text)
}

// want requires the reason of the last refusal. The hook runs before the response is sent.
func (d *verifying) want(t *testing.T, reason webhook.Reason) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused) == 0 || d.refused[len(d.refused)-1] != reason || len(d.verified) != 0 {
		t.Errorf("refused %v, verified %d, want %s", d.refused, len(d.verified), reason)
	}
}

func TestRead_Genuine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		d := open(t, s)
		for range 2 { // the second uses the same connection
			if answer := d.send(t, "POST", s.sign(t, now, body), strings.NewReader(body)); !strings.HasPrefix(answer, "200 ") {
				t.Error(answer)
			}
		}
		if len(d.verified) != 2 || d.verified[0].Key != d.verified[1].Key || string(d.verified[1].Body) != body {
			t.Errorf("%+v", d.verified)
		}
	})
}

// All invalid signatures get the same response.
func TestRead_NothingIsLeaked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sender) {
		d, answers := open(t, s), map[string]string{}
		try := func(what string, h http.Header, body string) {
			answers[d.send(t, "POST", h, strings.NewReader(body))] = what
		}
		try("forged", s.sign(t, now, body), body+" ")
		try("wrong secret", s.sign(t, now, body, s.other), body)
		try("no headers", http.Header{}, body)
		try("empty body", s.sign(t, now, body), "")
		garbage := s.sign(t, now, body)
		garbage.Set(s.header, "v1=x")
		try("garbage", garbage, body)
		twice := s.sign(t, now, body)
		twice.Add(s.header, "x")
		try("twice", twice, body)
		if s.timed {
			try("stale", s.sign(t, now.Add(-time.Hour), body), body)
			try("future", s.sign(t, now.Add(time.Hour), body), body)
		}
		const only = `401 map[Content-Length:[13] Content-Type:[text/plain; charset=utf-8] X-Content-Type-Options:[nosniff]] "Unauthorized\n"`
		if _, ok := answers[only]; !ok || len(answers) != 1 {
			t.Errorf("answers: %v", answers)
		}
	})
}

func TestRead_Methods(t *testing.T) {
	t.Parallel()
	s := senders[5]
	d := open(t, s)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		if answer := d.send(t, method, s.sign(t, now, body), strings.NewReader(body)); !strings.HasPrefix(answer, "405 map[Allow:[POST]") {
			t.Errorf("%s: %s", method, answer)
		}
		d.want(t, webhook.ReasonMethod)
	}
}

// A body beyond the limit is refused unread if its length says so, otherwise at the limit.
func TestRead_Oversized(t *testing.T) {
	t.Parallel()
	s := senders[5]
	d := open(t, s, func(c *webhook.Config) { c.MaxBody = 1000 })
	large := strings.Repeat("x", 100_000)
	for what, from := range map[string]io.Reader{"length": strings.NewReader(large), "chunked": io.MultiReader(strings.NewReader(large))} {
		if answer := d.send(t, "POST", s.sign(t, now, large), from); !strings.HasPrefix(answer, "413 ") {
			t.Errorf("%s: %s", what, answer)
		}
		d.want(t, webhook.ReasonBodyTooLarge)
	}
}

// An endless body is read up to the limit. A body with a too large Content-Length is not read.
func TestRead_OversizedIsNotRead(t *testing.T) {
	t.Parallel()
	s := senders[5]
	v := s.verifier(t, func(c *webhook.Config) { c.MaxBody = 1000 })
	for length, most := range map[int64]int{-1: 1001, 1001: 0} {
		from := &endless{}
		r := httptest.NewRequest("POST", "/", from)
		r.ContentLength, r.Header = length, s.sign(t, now, body)
		m, err := v.Read(httptest.NewRecorder(), r)
		wantRefused(t, s, m, err, webhook.ReasonBodyTooLarge)
		if from.read > most {
			t.Errorf("length %d: %d octets were read", length, from.read)
		}
	}
}

type endless struct{ read int }

func (r *endless) Read(p []byte) (int, error) {
	r.read += len(p)
	return len(p), nil
}

// The deadline of the body does not end the handler.
func TestRead_DeadlineIsForTheBody(t *testing.T) {
	t.Parallel()
	s := senders[5]
	var read error
	// A slow machine needs longer for the body.
	for limit := 50 * time.Millisecond; limit < time.Minute; limit *= 4 {
		v := s.verifier(t, func(c *webhook.Config) { c.ReadTimeout = limit })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, read = v.Read(w, r); read != nil {
				return
			}
			patience.Watch(2*limit, func() {
				if r.Context().Err() != nil {
					t.Error("the handler's context ended with the deadline of the body")
				}
			})
		}))
		d := &verifying{Server: server}
		answer := d.send(t, "POST", s.sign(t, now, body), strings.NewReader(body))
		server.Close()
		if read == nil {
			if !strings.HasPrefix(answer, "200 ") {
				t.Error(answer)
			}
			return
		}
	}
	t.Error(read)
}

// Compressed bodies are refused.
func TestRead_Encoded(t *testing.T) {
	t.Parallel()
	s := senders[5]
	d := open(t, s)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 10<<20))
	_ = w.Close()
	h := s.sign(t, now, packed.String())
	h.Set("Content-Encoding", "gzip")
	if answer := d.send(t, "POST", h, &packed); !strings.HasPrefix(answer, "415 ") {
		t.Error(answer)
	}
	d.want(t, webhook.ReasonContentEncoding)
}

func TestRead_LargeHeader(t *testing.T) {
	t.Parallel()
	s := senders[5]
	d := open(t, s)
	h := s.sign(t, now, body)
	h.Set("Content-Type", strings.Repeat("x", 5000)) // a header to keep
	if answer := d.send(t, "POST", h, strings.NewReader(body)); !strings.HasPrefix(answer, "431 ") {
		t.Error(answer)
	}
	d.want(t, webhook.ReasonHeaderTooLarge)
}

// raw sends the head of a request by hand and then what feed writes.
func (d *verifying) raw(t *testing.T, h http.Header, length int, feed func(net.Conn)) (answer *http.Response, conn net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", d.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", length)
	if err := h.Write(conn); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "\r\n")
	feed(conn)
	read := make(chan error, 1)
	go func() {
		answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
		read <- err
	}()
	if err := patience.Receive(t, "an answer: without one a sender holds a goroutine indefinitely", read); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer, conn
}

// A connection that ends before its body is not taken for a complete request.
func TestRead_Truncated(t *testing.T) {
	t.Parallel()
	s := senders[5]
	d := open(t, s)
	answer, _ := d.raw(t, s.sign(t, now, body), len(body), func(conn net.Conn) {
		fmt.Fprint(conn, body[:20])
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	if answer.StatusCode != http.StatusBadRequest {
		t.Error(answer.Status)
	}
	d.want(t, webhook.ReasonBodyTruncated)
}

// A silent or slow sender holds a goroutine no longer than ReadTimeout.
func TestRead_Slow(t *testing.T) {
	t.Parallel()
	s := senders[5]
	for what, feed := range map[string]func(net.Conn){
		"silent": func(conn net.Conn) { fmt.Fprint(conn, body[:20]) },
		"trickling": func(conn net.Conn) {
			go func() {
				for i := range body {
					if _, err := conn.Write([]byte{body[i]}); err != nil {
						return
					}
					patience.Elapse(20 * time.Millisecond)
				}
			}()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := open(t, s, func(c *webhook.Config) { c.ReadTimeout = 200 * time.Millisecond })
			answer, _ := d.raw(t, s.sign(t, now, body), len(body), feed)
			if answer.StatusCode != http.StatusRequestTimeout {
				t.Error(answer.Status)
			}
			d.want(t, webhook.ReasonBodyTimeout)
		})
	}
}

// A refusal by the headers is answered within ReadTimeout, too, even if the body never comes:
// net/http reads the rest of a body before it responds.
func TestRead_SlowIsRefusedBeforeItsBody(t *testing.T) {
	t.Parallel()
	s := senders[5]
	for what, c := range map[string]struct {
		h      http.Header
		length int
		reason webhook.Reason
	}{
		"no signature": {http.Header{}, len(body), webhook.ReasonHeaderMissing},
		"too large":    {s.sign(t, now, body), 2000, webhook.ReasonBodyTooLarge},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := open(t, s, func(c *webhook.Config) { c.ReadTimeout, c.MaxBody = 200*time.Millisecond, 1000 })
			d.raw(t, c.h, c.length, func(conn net.Conn) { fmt.Fprint(conn, body[:20]) })
			d.want(t, c.reason)
		})
	}
}

// Without deadlines, as in a recorder, the time check still stops a slow body.
func TestRead_SlowWithoutDeadline(t *testing.T) {
	t.Parallel()
	s := senders[5]
	v := s.verifier(t, func(c *webhook.Config) { c.ReadTimeout = 50 * time.Millisecond })
	r := httptest.NewRequest("POST", "/", &trickle{left: body})
	r.Header = s.sign(t, now, body)
	m, err := v.Read(httptest.NewRecorder(), r)
	wantRefused(t, s, m, err, webhook.ReasonBodyTimeout)
}

type trickle struct{ left string }

func (r *trickle) Read(p []byte) (int, error) {
	patience.Elapse(5 * time.Millisecond)
	if r.left == "" {
		return 0, io.EOF
	}
	p[0], r.left = r.left[0], r.left[1:]
	return 1, nil
}

// Each reason has a status of 4xx that is not 410, and a next step.
func TestRefusal_Answers(t *testing.T) {
	t.Parallel()
	for _, reason := range []webhook.Reason{webhook.ReasonMethod, webhook.ReasonContentEncoding, webhook.ReasonHeaderMissing, webhook.ReasonHeaderRepeated,
		webhook.ReasonHeaderTooLarge, webhook.ReasonBodyTooLarge, webhook.ReasonBodyTimeout, webhook.ReasonBodyTruncated, webhook.ReasonBodyEmpty,
		webhook.ReasonIDMalformed, webhook.ReasonTimestampMalformed, webhook.ReasonSignatureMalformed, webhook.ReasonTooManySignatures,
		webhook.ReasonSignatureMismatch, webhook.ReasonTimestampStale, webhook.ReasonTimestampFuture} {
		r := &webhook.Refusal{Reason: reason}
		if s := r.Status(); s < 400 || s >= 500 || s == http.StatusGone || r.Hint() == "" || !strings.HasPrefix(r.Error(), "webhook.verify: "+string(reason)+": ") {
			t.Errorf("%d %s", s, r)
		}
	}
	w := httptest.NewRecorder()
	webhook.Refuse(w, io.EOF) // an error of another package
	if w.Code != http.StatusBadRequest || w.Body.String() != "Bad Request\n" {
		t.Error(w.Code, w.Body)
	}
}
