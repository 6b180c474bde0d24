package outbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/pawl-go/pawl"
)

// NewRequest makes the HTTP request that carries m to url, for use in a [Func]. It follows the
// binary mode of the HTTP binding of CloudEvents 1.0: a POST with the payload as body, the headers
// of m, and its id as Idempotency-Key. CloudEvents attributes (ce-*) are percent-encoded as section
// 3.1.3.2 of the binding demands, and receivers decode them. Other headers are sent unchanged.
//
// NewRequest refuses a message that HTTP cannot carry exactly with a [pawl.Final] error. It refuses
// a header if its name is not a token (RFC 9110), differs from another's only in case, or governs
// the connection, such as Host. It refuses a value if it contains control characters other than a
// tab, or begins or ends with a space or a tab, which receivers trim.
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

// ofTheConnection are the headers that the HTTP client sets.
var ofTheConnection = map[string]bool{"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true}

func setHeader(h http.Header, name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	before, given := h[canonical]
	switch {
	case !isToken(name):
		return fmt.Errorf("HTTP cannot carry the header %q: its name is not a token", name)
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

// percentEncoded follows section 3.1.3.2 of the HTTP binding. It encodes all octets except
// printable ASCII, and also the space, the double quote and the percent sign.
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
