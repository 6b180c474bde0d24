package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/transport/webhook"
)

type verifyFlags struct {
	schemeFlags
	headers, body, at string
	tolerance         time.Duration
	json              *bool
}

func newWebhookVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify --scheme NAME --headers FILE --body FILE",
		Short: "Check a captured request, and say which step fails",
		Long: `Checks a request as a receiver does: headers, body, signature, timestamp, key. The file of headers has one header a line, "Name: value".
A request line before them and text after an empty line are ignored. The body must be the raw octets: an editor that adds a newline
breaks the signature. For an old capture pass --at, the time at which it arrived. The exit code is 1 if a step fails.

` + schemeHelp,
		Example: `  export PAWL_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  pawl webhook verify --scheme standard --headers headers.txt --body body.json
  pawl webhook verify --scheme stripe --headers headers.txt --body body.json --at 2026-11-21T18:00:00Z --json`,
		Args: noArgs,
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.headers, "headers", "", "file of the headers; required")
	cmd.Flags().StringVar(&f.body, "body", "", "file of the raw body, - is stdin; required")
	cmd.Flags().StringVar(&f.at, "at", "", "when it arrived, seconds since 1970 or RFC 3339 (default now)")
	cmd.Flags().DurationVar(&f.tolerance, "tolerance", 5*time.Minute, "longest distance of its timestamp from --at")
	f.json = addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *verifyFlags) run(cmd *cobra.Command) error {
	if f.headers == "" || f.body == "" {
		return misused(cmd, "the request is missing", "pass --headers FILE and --body FILE")
	}
	at, err := readTime(cmd, f.at)
	if err != nil {
		return err
	}
	scheme, err := f.scheme(cmd)
	if err != nil {
		return err
	}
	v, err := webhook.New(webhook.Config{Scheme: scheme, Tolerance: f.tolerance, MaxBody: mostInput, Now: at})
	if err != nil {
		return err
	}
	h, err := f.readHeaders(cmd)
	if err != nil {
		return err
	}
	body, err := readInput(cmd, "--body", f.body)
	if err != nil {
		return err
	}
	m, refused := v.Verify(h, body)
	result := checkedOf(m, refused)
	if err := f.print(cmd, result); err != nil {
		return err
	}
	if cause := captured(v, h, body, refused); cause != "" {
		return failed(cmd, fmt.Errorf("signature: %s: %s", webhook.ReasonSignatureMismatch, cause), "capture the raw octets")
	}
	return f.verdict(cmd, m, refused)
}

// verdict is the error of the step that failed, with the next step.
func (f *verifyFlags) verdict(cmd *cobra.Command, m webhook.Verified, refused error) error {
	var r *webhook.Refusal
	switch {
	case errors.As(refused, &r):
		next := r.Hint()
		if r.Reason == webhook.ReasonTimestampStale && f.at == "" {
			next = "if the capture is old, pass --at with the time at which it arrived; else " + next
		}
		return failed(cmd, fmt.Errorf("%s: %s", checkOf(r.Reason), r.Reason), next)
	case m.Key == "":
		return failed(cmd, errors.New("key: "+m.KeyFault), "it is genuine, but without a key its duplicates cannot be recognised: choose another Config.Key")
	}
	return nil
}

// captured reports whether the file is at fault instead of the request. It undoes common changes by
// editors and shells, and checks whether the body then verifies.
func captured(v *webhook.Verifier, h http.Header, body []byte, refused error) string {
	var r *webhook.Refusal
	if !errors.As(refused, &r) || r.Reason != webhook.ReasonSignatureMismatch {
		return ""
	}
	for _, undo := range []struct {
		said string
		body []byte
	}{
		{"it verifies without the newline at the end of --body", bytes.TrimRight(body, "\r\n")},
		{"it verifies with LF instead of CRLF in --body", bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))},
		{"it verifies with CRLF instead of LF in --body", bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n"))},
	} {
		if _, err := v.Verify(h, undo.body); err == nil {
			return undo.said
		}
	}
	return ""
}

// requestLine may precede the headers of a capture.
var requestLine = regexp.MustCompile(`^[A-Z]+ \S+ HTTP/[0-9.]+\r?\n`)

func (f *verifyFlags) readHeaders(cmd *cobra.Command) (http.Header, error) {
	text, err := readInput(cmd, "--headers", f.headers)
	if err != nil {
		return nil, err
	}
	text = append(text[len(requestLine.Find(text)):], "\r\n\r\n"...)
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(text))).ReadMIMEHeader()
	if err != nil {
		return nil, misused(cmd, fmt.Sprintf("--headers %q holds no headers", f.headers), "write one a line, as in: Webhook-Id: msg_1")
	}
	return http.Header(h), nil
}

// The steps in their order.
const (
	stepHeaders   = "headers"
	stepBody      = "body"
	stepSignature = "signature"
	stepTimestamp = "timestamp"
	stepKey       = "key"
)

func checkOf(reason webhook.Reason) string {
	switch reason {
	case webhook.ReasonBodyEmpty, webhook.ReasonBodyTooLarge:
		return stepBody
	case webhook.ReasonSignatureMalformed, webhook.ReasonSignatureMismatch, webhook.ReasonTooManySignatures:
		return stepSignature
	case webhook.ReasonTimestampStale, webhook.ReasonTimestampFuture:
		return stepTimestamp
	}
	return stepHeaders
}

type checkedJSON struct {
	Verified bool              `json:"verified"`
	Steps    []checkJSON       `json:"steps"`
	Secret   *string           `json:"secret"` // name of the secret that signed
	Key      *string           `json:"key"`
	ID       *string           `json:"id"`
	IDSigned bool              `json:"id_signed"`
	SentAt   *time.Time        `json:"sent_at"` // null: not signed
	Headers  map[string]string `json:"headers"`
}

type checkJSON struct {
	Step    string  `json:"step"`
	Outcome string  `json:"outcome"` // ok, failed, not_reached
	Reason  *string `json:"reason"`
	Detail  *string `json:"detail"`
}

func checkedOf(m webhook.Verified, refused error) checkedJSON {
	c := checkedJSON{Verified: refused == nil && m.Key != "", Secret: given(m.Secret), Key: given(m.Key), ID: given(m.ID), IDSigned: m.IDSigned, Headers: m.UnsignedHeaders}
	if !m.SentAt.IsZero() {
		c.SentAt = &m.SentAt
	}
	fault := checkJSON{Outcome: "failed"}
	var r *webhook.Refusal
	switch {
	case errors.As(refused, &r):
		fault.Step, fault.Reason, fault.Detail = checkOf(r.Reason), given(string(r.Reason)), given(r.Detail)
	case m.Key == "":
		fault.Step, fault.Detail = stepKey, given(m.KeyFault)
	}
	outcome := "ok"
	for _, name := range []string{stepHeaders, stepBody, stepSignature, stepTimestamp, stepKey} {
		if name == fault.Step {
			c.Steps = append(c.Steps, fault)
			outcome = "not_reached"
			continue
		}
		c.Steps = append(c.Steps, checkJSON{Step: name, Outcome: outcome})
	}
	return c
}

func (f *verifyFlags) print(cmd *cobra.Command, c checkedJSON) error {
	if *f.json {
		return printJSON(cmd.OutOrStdout(), c)
	}
	rows := make([][]string, 0, len(c.Steps))
	for _, s := range c.Steps {
		rows = append(rows, []string{s.Step, s.Outcome, c.note(s)})
	}
	if err := printTable(cmd.OutOrStdout(), []string{"STEP", "OUTCOME", ""}, rows); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, text.Visible(c.Headers[name])); err != nil {
			return err
		}
	}
	return nil
}

func (c checkedJSON) note(s checkJSON) string {
	switch {
	case s.Reason != nil && s.Detail != nil:
		return *s.Reason + ": " + text.Visible(*s.Detail)
	case s.Reason != nil:
		return *s.Reason
	case s.Detail != nil:
		return text.Visible(*s.Detail)
	case s.Outcome != "ok" || c.Secret == nil: // a refused request has no further notes
		return ""
	}
	switch s.Step {
	case stepSignature:
		return "by " + text.Visible(*c.Secret)
	case stepTimestamp:
		if c.SentAt == nil {
			return "not signed by this scheme"
		}
		return c.SentAt.Format(time.RFC3339)
	case stepKey:
		if !c.IDSigned {
			return text.Visible(*c.Key) + " (the id is not signed)"
		}
		return text.Visible(*c.Key)
	}
	return ""
}
