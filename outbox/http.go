package outbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/pawl-go/pawl"
)

// NewRequest makes the HTTP request that carries m to url, in the binary mode of the HTTP binding of CloudEvents 1.0: a POST whose
// body is the payload, with the headers of m and its id as Idempotency-Key. Attributes of CloudEvents (ce-*) are percent-encoded as
// section 3.1.3.2 of the binding demands, and receivers decode them; other headers travel as they are. Use it in a [Func].
//
// A message that HTTP cannot carry exactly is refused with a [pawl.Final] error, before anything is sent: a header whose name is no
// token (RFC 9110), differs from another's in its case only or governs the connection, such as Host and Content-Length; a value
// that holds control characters other than a tab, or that begins or ends with a space or a tab, which receivers cut off.
func NewRequest(ctx context.Context, url string, m pawl.Message) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Payload))
	if err != nil {
		return nil, &pawl.Error{Op: "outbox.http", Code: pawl.CodeArgumentInvalid, Err: err, Hint: "check the URL of the receiver"}
	}
	if err := setHeader(r.Header, idempotencyKey, m.ID); err != nil {
		return nil, pawl.Final(err)
	}
	for name, value := range m.Headers {
		if strings.HasPrefix(strings.ToLower(name), "ce-") {
			value = percentEncoded(value)
		}
		if err := setHeader(r.Header, name, value); err != nil {
			return nil, pawl.Final(err)
		}
	}
	return r, nil
}

const idempotencyKey = "Idempotency-Key"

// ofTheConnection are headers that say how a request is sent. They are the client's.
var ofTheConnection = map[string]bool{"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true}

func setHeader(h http.Header, name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	before, given := h[canonical]
	switch {
	case !isToken(name):
		return fmt.Errorf("HTTP cannot carry the header %q: its name is no token", name)
	case ofTheConnection[canonical]:
		return fmt.Errorf("HTTP cannot carry the header %q: it governs the connection", name)
	case given && before[0] != value:
		return fmt.Errorf("HTTP cannot carry the header %q: another one differs in case only, or is set from the event's id", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("HTTP cannot carry the header %q: its value %q holds a control character", name, value)
	case strings.Trim(value, " \t") != value:
		return fmt.Errorf("HTTP cannot carry the header %q: its value %q begins or ends with a space or a tab", name, value)
	}
	h[canonical] = []string{value}
	return nil
}

// isToken follows section 5.6.2 of RFC 9110.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// percentEncoded follows section 3.1.3.2 of the HTTP binding: all but printable ASCII, and of it the space, the double quote and the
// percent sign.
func percentEncoded(value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
