package step_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/step"
)

// outcome sends a POST through base in one step, and returns the recorded outcome.
func (b *bed) outcome(base http.RoundTripper, url string, timeout time.Duration) (outcome string) {
	b.Helper()
	client := &http.Client{Transport: &step.Transport{Base: base}}
	s := step.Step{Name: "post", Recovery: step.AtMostOnce(), Timeout: timeout}
	_, _ = step.Run(b.Context(), b.pool, b.claim(), s, func(ctx context.Context, _ step.Call) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Repeat("x", 100_000)))
		if err != nil {
			return "", err
		}
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		return "", step.HTTPStatus(response.StatusCode, "")
	})
	b.must(b.pool.QueryRow(b.Context(), "select coalesce(c.outcome, 'none') from pawl.step_call as c order by c.fence desc limit 1").Scan(&outcome))
	return outcome
}

// listen accepts connections and passes each to a function, until the test ends.
func listen(t *testing.T, each func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				each(c)
			}()
		}
	}()
	return l.Addr().String()
}

// A failure before the request is written is not_sent; after its first byte it is ambiguous.
func TestTransport_NotSentIsCertain(t *testing.T) {
	t.Parallel()
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	cut := listen(t, func(net.Conn) {})
	cutLater := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
	refusing := listen(t, func(c net.Conn) { // a proxy that opens no tunnel
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
	})
	h2 := func(handler http.HandlerFunc) (*httptest.Server, http.RoundTripper) {
		s := httptest.NewUnstartedServer(handler)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, s.Client().Transport
	}
	aborting, abortingBase := h2(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("protocol %s", r.Proto)
		}
		panic(http.ErrAbortHandler)
	})
	hanging, hangingBase := h2(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	through := func(proxy string) http.RoundTripper {
		return &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})}
	}
	socks := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "socks5", Host: cut})}
	retrying := roundTrip(func(r *http.Request) (*http.Response, error) {
		_, _ = new(http.Transport).RoundTrip(r)
		r.URL.Host = "127.0.0.1:1"
		return new(http.Transport).RoundTrip(r)
	})
	for what, c := range map[string]struct {
		base    http.RoundTripper
		url     string
		timeout time.Duration
		want    string
	}{
		"nobody listens":                   {url: "http://127.0.0.1:1", want: "not_sent"},
		"no such name":                     {url: "http://no-such-host.invalid", want: "not_sent"},
		"TLS: cut in the handshake":        {url: "https://" + cut, want: "not_sent"},
		"TLS: nobody answers":              {url: "https://" + silent, timeout: 300 * time.Millisecond, want: "not_sent"},
		"TLS: an unknown authority":        {url: aborting.URL, want: "not_sent"},
		"TLS: a server without TLS":        {url: "https://" + refusing, want: "not_sent"},
		"proxy: nobody listens":            {base: through("127.0.0.1:1"), url: "http://example.invalid", want: "not_sent"},
		"proxy: no tunnel":                 {base: through(refusing), url: "https://example.invalid", want: "not_sent"},
		"proxy: SOCKS, cut":                {base: socks, url: "http://example.invalid", want: "not_sent"},
		"proxy: it answers for the server": {base: through(refusing), url: "http://example.invalid", want: "ambiguous"},
		"cut as soon as connected":         {url: "http://" + cut, want: "ambiguous"},
		"cut while it is read":             {url: "http://" + cutLater, want: "ambiguous"},
		"nobody answers":                   {url: "http://" + silent, timeout: 5 * time.Second, want: "ambiguous"},
		"HTTP/2: the stream is reset":      {base: abortingBase, url: aborting.URL, want: "ambiguous"},
		"HTTP/2: nobody answers":           {base: hangingBase, url: hanging.URL, timeout: 5 * time.Second, want: "ambiguous"},
		"HTTP/2: nobody listens":           {base: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{}}, url: "https://127.0.0.1:1", want: "not_sent"},
		"a base that says nothing": {base: roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("no")}
		}), url: "http://x", want: "ambiguous"},
		"a base that sends twice, and then not": {base: retrying, url: "http://" + cutLater, want: "ambiguous"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if got := setup(t, time.Hour, nil).outcome(c.base, c.url, c.timeout); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A redirect is another request. If it fails to connect, that says nothing about the first.
func TestTransport_ARedirectIsAnotherRequest(t *testing.T) {
	t.Parallel()
	var acted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		acted.Add(1)
		http.Redirect(w, r, "http://127.0.0.1:1/result", http.StatusSeeOther)
	}))
	t.Cleanup(server.Close)
	if got := setup(t, time.Hour, nil).outcome(nil, server.URL, 0); got != "ambiguous" || acted.Load() != 1 {
		t.Errorf("%s after %d", got, acted.Load())
	}
}

// A client's own retry is refused, unless nothing was sent before.
func TestTransport_OneCallIsOneRequest(t *testing.T) {
	t.Parallel()
	for _, firstIsSent := range []bool{true, false} {
		b := setup(t, time.Hour, nil)
		from := b.provider.URL
		if !firstIsSent {
			from = "http://127.0.0.1:1"
		}
		_, err := step.Run(t.Context(), b.pool, b.claim(), b.step(step.AtMostOnce()), func(ctx context.Context, _ step.Call) (string, error) {
			_, err := charge(ctx, b.client, from, "100 EUR")
			_, again := b.charge(ctx, "100 EUR")
			if (err == nil) != firstIsSent || (again == nil) == firstIsSent {
				t.Errorf("sent %v: %v, then %v", firstIsSent, err, again)
			}
			return "", nil
		})
		b.must(err)
		b.wantCharges(1)
	}
}

// The exchange is stored with the call, without bodies or headers.
func TestTransport_KeepsTheExchange(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request", "req_7")
		w.Header().Set("Set-Cookie", "secret")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &step.Transport{RequestID: "X-Request", Header: "-"}}
	_, err := step.Run(t.Context(), b.pool, b.claim(), b.step(step.AtMostOnce()), func(ctx context.Context, _ step.Call) (string, error) {
		_, err := charge(ctx, client, server.URL, "100 EUR")
		return "", err
	})
	if !errors.Is(err, pawl.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	var kept string
	b.must(b.pool.QueryRow(t.Context(), `select (c.detail -> 'exchange') - 'took_ms' || jsonb_build_object('error', c.detail ->> 'error') from pawl.step_call as c`).Scan(&kept))
	host := strings.TrimPrefix(server.URL, "http://")
	if want := `{"host": "` + host + `", "error": "HTTP status 503: ", "method": "POST", "status": 503, "request_id": "req_7"}`; kept != want {
		t.Errorf("%s, want %s", kept, want)
	}
}
