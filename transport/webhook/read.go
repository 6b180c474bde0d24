package webhook

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/pawl-go/pawl"
)

// Read reads a request within the limits and verifies it. An error is a [Refusal] that the hooks
// have received. Read sends no response; call [Refuse] for that.
//
//	m, err := verifier.Read(w, r)
//	if err != nil {
//		webhook.Refuse(w, err)
//		return
//	}
func (v *Verifier) Read(w http.ResponseWriter, r *http.Request) (Verified, error) {
	m, err := v.read(w, r)
	if err != nil {
		v.cfg.Hooks.Emit(r.Context(), pawl.Event{Kind: pawl.EventWebhookRefused, Op: "webhook.verify", Scope: v.cfg.Scheme.Name(), Err: err})
	}
	return m, err
}

func (v *Verifier) read(w http.ResponseWriter, r *http.Request) (Verified, error) {
	// Sets the deadline before any refusal: net/http reads the rest of a body before it responds.
	// Some ResponseWriters accept no deadline; then http.Server.ReadTimeout applies. The server
	// removes the deadline after the body.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(v.cfg.ReadTimeout))
	if r.Method != http.MethodPost {
		return Verified{}, refuse(ReasonMethod, "")
	}
	if err := v.inspect(r.Header); err != nil {
		return Verified{}, err
	}
	if r.ContentLength > v.cfg.MaxBody {
		return Verified{}, v.tooLarge()
	}
	body, err := v.readBody(w, r)
	if err != nil {
		return Verified{}, err
	}
	return v.Verify(r.Header, body)
}

// readBody reads the raw octets. A slow sender is stopped by the time check between two reads, a
// silent one by the deadline of the connection.
func (v *Verifier) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	until := time.Now().Add(v.cfg.ReadTimeout)
	body, err := io.ReadAll(&inTime{http.MaxBytesReader(w, r.Body, v.cfg.MaxBody), until})
	var network net.Error
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, v.tooLarge()
	case errors.Is(err, errSlow), errors.As(err, &network) && network.Timeout():
		return nil, &Refusal{Reason: ReasonBodyTimeout, Detail: fmt.Sprintf("%d octets in %s", len(body), v.cfg.ReadTimeout), Err: err}
	case err != nil:
		return nil, &Refusal{Reason: ReasonBodyTruncated, Detail: fmt.Sprintf("after %d octets", len(body)), Err: err}
	}
	return body, nil
}

func (v *Verifier) tooLarge() error {
	return refuse(ReasonBodyTooLarge, fmt.Sprintf("at most %d octets are allowed", v.cfg.MaxBody))
}

var errSlow = errors.New("the body is too slow")

type inTime struct {
	io.Reader
	until time.Time
}

func (r *inTime) Read(p []byte) (int, error) {
	if time.Now().After(r.until) {
		return 0, errSlow
	}
	return r.Reader.Read(p)
}
