package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Scheme is how a sender signs. Make one with [StandardWebhooks], [Svix], [Stripe], [Mux],
// [GitHub], [Slack], [Shopify] or [HMAC]. [New] and [Scheme.Sign] report an invalid secret.
type Scheme interface {
	// Name is the sender's name in logs and on the command line.
	Name() string
	// Sender returns what is known of the sender, such as how long it retries.
	Sender() Sender
	// Sign returns the headers of one attempt. Use the same id for each. at is truncated to
	// seconds; schemes without a timestamp ignore it. id is empty if the body holds it.
	Sign(id string, at time.Time, body []byte) (http.Header, error)

	// check returns the error of the scheme's configuration.
	check() error
	// headers returns the required headers for a request with headers h, the signature's first.
	headers(h http.Header) []string
	// keeps returns the headers to store with the payload.
	keeps() []string
	// named returns the id of a delivery without verifying its signature.
	named(h http.Header, body []byte) (signatureInfo, error)
	// verify verifies the signature. It does not check the time.
	verify(h http.Header, body []byte) (signatureInfo, error)
}

// A signer is the part that all schemes share.
type signer struct {
	name string
	keys []key
	err  error // of the configuration
}

func (s *signer) Name() string   { return s.name }
func (s *signer) String() string { return s.name }
func (s *signer) Sender() Sender { return senderNamed(s.name) }
func (s *signer) check() error   { return s.err }

// A proof is the result of verifying a signature.
type signatureInfo struct {
	secret   string
	id       string
	key      string // the id, unless the sender uses one id for several deliveries
	idSigned bool
	at       int64 // seconds since 1970; 0 if the scheme signs no time
}

const (
	// longestHeader bounds each header that is read, in octets.
	longestHeader = 4096
	// mostSignatures bounds the work for one request; rotation needs two.
	mostSignatures = 10
	// longestTimestamp is in digits and reaches the year 33658.
	longestTimestamp = 12
)

// only returns the value of a header that must occur once.
func only(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) > 1:
		return "", refuse(ReasonHeaderRepeated, fmt.Sprintf("%s, %d times", name, len(values)))
	case len(values) == 0 || values[0] == "":
		return "", refuse(ReasonHeaderMissing, name)
	case len(values[0]) > longestHeader:
		return "", refuse(ReasonHeaderTooLarge, fmt.Sprintf("%s has %d octets, at most %d are allowed", name, len(values[0]), longestHeader))
	default:
		return values[0], nil
	}
}

// readTimestamp reads seconds since 1970. It accepts digits only, so that a time has one spelling.
func readTimestamp(text string) (int64, error) {
	if text == "" || len(text) > longestTimestamp || text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return 0, refuse(ReasonTimestampMalformed, fmt.Sprintf("%d octets", len(text)))
	}
	return strconv.ParseInt(text, 10, 64) // so many digits fit
}

// checkID refuses ids that no sender uses: white space, control characters, over 255 octets, or a
// comma, which joins repeated headers.
func checkID(id, never string) error {
	if id == "" || len(id) > 255 {
		return refuse(ReasonIDMalformed, fmt.Sprintf("%d octets, 1 to 255 are allowed", len(id)))
	}
	for i := range len(id) {
		c := id[i]
		if c <= 0x20 || c > 0x7e || c == ',' || len(never) > 0 && c == never[0] {
			return refuse(ReasonIDMalformed, fmt.Sprintf("octet %#02x at %d", c, i))
		}
	}
	return nil
}

func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

func mismatch(signatures, keys int) error {
	return refuse(ReasonSignatureMismatch, fmt.Sprintf("signatures: %d, secrets: %d", signatures, keys))
}
