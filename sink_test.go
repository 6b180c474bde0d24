package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
)

// net/http returns a *url.Error, which is a net.Error, for a bad header as for a refused
// connection. The wrapped error tells whether the cause is the message or the sink.
func TestIsSinkDown_JudgesTheCause(t *testing.T) {
	t.Parallel()
	answer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-r.Context().Done()
		case "/hangs-up":
			panic(http.ErrAbortHandler)
		}
	}))
	defer answer.Close()
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nothing := "http://" + closed.Addr().String()
	closed.Close()

	post := func(url, name, value string) error {
		// The request has arrived by then.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if url != answer.URL+"/slow" {
			ctx = t.Context()
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header[name] = []string{value}
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a line feed in a value":  {post(answer.URL, "X", "a\nb"), false},
		"a name that is no token": {post(answer.URL, "x y", "v"), false},
		"an unknown scheme":       {post("ftp://127.0.0.1", "X", "v"), false},
		"connection refused":      {post(nothing, "X", "v"), true},
		"timeout":                 {post(answer.URL+"/slow", "X", "v"), true},
		"the server hangs up":     {post(answer.URL+"/hangs-up", "X", "v"), true},
		"an unknown certificate":  {post(secure.URL, "X", "v"), true},
		"an unknown host":         {&url.Error{Op: "Post", Err: &net.DNSError{IsNotFound: true}}, true},
		"wrapped":                 {fmt.Errorf("publish: %w", &url.Error{Op: "Post", Err: errors.New("net/http: invalid header field name")}), false},
		"reset":                   {fmt.Errorf("read: %w", syscall.ECONNRESET), true},
		"an empty payload":        {fmt.Errorf("decode: %w", io.EOF), false},
		"a long file name":        {&fs.PathError{Op: "open", Err: syscall.ENAMETOOLONG}, false},
		"deadline":                {context.DeadlineExceeded, true},
		"said":                    {pawl.SinkDown(errors.New("maintenance")), true},
		"said of a bad header":    {pawl.SinkDown(&url.Error{Op: "Post", Err: errors.New("net/http: invalid header field name")}), true},
		"final":                   {pawl.Final(&net.OpError{Op: "dial", Err: errors.New("refused")}), false},
		"plain":                   {errors.New("500"), false},
		"none":                    {nil, false},
	} {
		if name != "none" && c.err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := pawl.IsSinkDown(c.err); got != c.want {
			t.Errorf("%s: down is %v, want %v: %T %v", name, got, c.want, c.err, c.err)
		}
	}
}
