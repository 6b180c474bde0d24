package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A Scheme says how a sender signs. It is made by [StandardWebhooks], [Svix], [Stripe], [Mux], [GitHub], [Slack], [Shopify] or
// [HMAC]; a wrong secret is reported by [New] and [Scheme.Sign]. Printed, it is its name.
type Scheme interface {
	// Name is that of the sender, as in logs and on the command line.
	Name() string
	// Sender is what is known of the sender: how long it retries, what it changes on a retry.
	Sender() Sender
	// Sign returns the headers of a delivery, signed anew for each attempt, with the id kept. at is cut to seconds; schemes
	// without a timestamp ignore it. id is empty where the body holds it.
	Sign(id string, at time.Time, body []byte) (http.Header, error)

	// check returns what is wrong with the scheme itself.
	check() error
	// headers are those without which nothing can be verified in a request with the headers h, the signature's first.
	headers(h http.Header) []string
	// keeps are the headers worth keeping with the payload.
	keeps() []string
	// named returns the id of a delivery whose signature is not looked at.
	named(h http.Header, body []byte) (proof, error)
	// prove verifies the signature. It does not judge the time.
	prove(h http.Header, body []byte) (proof, error)
}

// A proof is what a signature proves, and what stands beside it.
type proof struct {
	secret   string
	id       string
	key      string // what to remember: the id, unless the sender uses one id for several things
	idSigned bool
	at       int64 // seconds since 1970; 0 if the scheme signs none
}

const (
	// longestHeader bounds each header that is looked at, in octets.
	longestHeader = 4096
	// mostSignatures bounds the work of one request; rotation needs two.
	mostSignatures = 10
	// longestTimestamp is the year 33658, in digits.
	longestTimestamp = 12
)

// only returns the one value of a header.
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

// readTimestamp reads seconds since 1970: digits only, so that what was signed has one spelling.
func readTimestamp(text string) (int64, error) {
	malformed := refuse(ReasonTimestampMalformed, fmt.Sprintf("%d octets", len(text)))
	if text == "" || len(text) > longestTimestamp || text[0] == '0' {
		return 0, malformed
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, malformed
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, malformed
	}
	return seconds, nil
}

// checkID refuses what no sender uses as an id in a header: white space, control characters, more than 255 octets, and a
// comma, which is what joined headers have.
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

// seconds is a time as schemes write it.
func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// mismatch is the end of every search for a signature that was made with one of the keys.
func mismatch(signatures, keys int) error {
	return refuse(ReasonSignatureMismatch, fmt.Sprintf("signatures: %d, secrets: %d", signatures, keys))
}
