package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
)

const (
	mostRepeats  = 1000
	mostResponse = 200 // octets shown of a response that is not 2xx
)

type sendFlags struct {
	deliveryFlags
	repeat      int
	timeout     time.Duration
	contentType string
	json        *bool
}

func newWebhookSend() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send URL --scheme NAME",
		Short: "Sign a body and POST it, once or several times",
		Long: `Signs a body and sends it as its sender would. With --repeat the same delivery is sent again, like a sender's retries: one id, one body,
signed anew for each try. Redirects are not followed. The exit code is 1 if a response is not 2xx.

` + schemeHelp,
		Example: `  export PAWL_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  pawl webhook send http://localhost:8080/hook --scheme standard --body event.json
  pawl webhook send http://localhost:8080/hook --scheme standard --body event.json --repeat 3    # duplicates: one effect?
  pawl webhook send http://localhost:8080/hook --scheme standard --body event.json --at 2020-01-01T00:00:00Z    # stale: refused?`,
		Args: takes(1),
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, fmt.Sprintf("how often to send it, 1 to %d", mostRepeats))
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "timeout of one try")
	cmd.Flags().StringVar(&f.contentType, "content-type", "application/json", "content type of the body")
	f.json = addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) }
	return cmd
}

func (f *sendFlags) run(cmd *cobra.Command, args []string) error {
	to, err := url.Parse(args[0])
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return misused(cmd, "the URL is not one of http or https", "write it as in http://localhost:8080/hook")
	}
	switch {
	case f.repeat < 1 || f.repeat > mostRepeats:
		return misused(cmd, fmt.Sprintf("--repeat must lie between 1 and %d, it is %d", mostRepeats, f.repeat), "see: "+cmd.CommandPath()+" --help")
	case f.timeout < time.Millisecond || f.timeout > 10*time.Minute:
		return misused(cmd, fmt.Sprintf("--timeout must lie between 1ms and 10m, it is %v", f.timeout), "see: "+cmd.CommandPath()+" --help")
	}
	d, err := f.delivery(cmd)
	if err != nil {
		return err
	}
	return f.send(cmd, to, d)
}

func (f *sendFlags) send(cmd *cobra.Command, to *url.URL, d delivery) error {
	client := &http.Client{Timeout: f.timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	sent, failures := sentJSON{ID: given(d.id), Tries: []tryJSON{}}, 0
	for range f.repeat {
		try, err := f.try(cmd, client, to, d)
		if err != nil {
			return err
		}
		if !try.ok() {
			failures++
		}
		sent.Tries = append(sent.Tries, try)
		if !*f.json {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), try); err != nil {
				return err
			}
		}
		if cmd.Context().Err() != nil {
			return failed(cmd, errors.New("interrupted"), "run it again")
		}
	}
	if *f.json {
		if err := printJSON(cmd.OutOrStdout(), sent); err != nil {
			return err
		}
	}
	if failures > 0 {
		return failed(cmd, fmt.Errorf("%d of %d tries were not answered 2xx", failures, f.repeat), "the receiver's log says why; so does: pawl webhook verify")
	}
	return nil
}

// try signs and sends once. A missing response is a result; a request that cannot be signed is an
// error.
func (f *sendFlags) try(cmd *cobra.Command, client *http.Client, to *url.URL, d delivery) (tryJSON, error) {
	signed, err := d.sign()
	if err != nil {
		return tryJSON{}, err
	}
	r, err := http.NewRequestWithContext(cmd.Context(), http.MethodPost, to.String(), bytes.NewReader(d.body))
	if err != nil {
		return tryJSON{}, misused(cmd, "the URL cannot be used", "write it as in http://localhost:8080/hook")
	}
	r.Header = signed
	r.Header.Set("Content-Type", f.contentType)
	r.Header.Set("User-Agent", "pawl/"+buildVersion())
	began := time.Now()
	response, err := client.Do(r)
	if err != nil {
		return tryJSON{Milliseconds: since(began), Error: given(sendCause(err))}, nil
	}
	defer response.Body.Close()
	// the part that arrived is shown
	body, _ := io.ReadAll(io.LimitReader(response.Body, mostResponse))
	return tryJSON{Status: &response.StatusCode, Milliseconds: since(began), Response: string(body)}, nil
}

func since(began time.Time) float64 {
	return float64(time.Since(began).Microseconds()) / 1000
}

// sendCause leaves out the URL, because it may contain a token.
func sendCause(err error) string {
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || where != nil && where.Timeout() {
		return "no answer in time"
	}
	return dialCause(err)
}

type sentJSON struct {
	ID    *string   `json:"id"` // null: the id is in the body
	Tries []tryJSON `json:"tries"`
}

type tryJSON struct {
	Status       *int    `json:"status"` // null: no answer
	Milliseconds float64 `json:"milliseconds"`
	Response     string  `json:"response"` // the first 200 octets
	Error        *string `json:"error"`
}

func (t tryJSON) ok() bool { return t.Status != nil && *t.Status >= 200 && *t.Status < 300 }

// String is one line for people.
func (t tryJSON) String() string {
	switch {
	case t.Status == nil:
		return fmt.Sprintf("no answer  %.1f ms  %s", t.Milliseconds, text.Visible(*t.Error))
	case t.ok() || t.Response == "":
		return fmt.Sprintf("%d %s  %.1f ms", *t.Status, http.StatusText(*t.Status), t.Milliseconds)
	}
	return fmt.Sprintf("%d %s  %.1f ms  %s", *t.Status, http.StatusText(*t.Status), t.Milliseconds, text.Visible(oneLine(t.Response)))
}

// given returns nil for a zero value, which JSON prints as null.
func given[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
