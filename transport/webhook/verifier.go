package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
)

// Config configures a [Verifier]. Only Scheme is required; zero values are fit for production.
type Config struct {
	// Scheme is how the sender signs.
	Scheme Scheme
	// Tolerance is how far the signed timestamp may be from Now, in both directions. A longer one
	// gives a replay more time; a shorter one refuses delayed deliveries and clocks that are off.
	// It has no effect on schemes without a timestamp. Default 5 min, 1 s to 24 h.
	Tolerance time.Duration
	// MaxBody is the longest body in octets, held in memory. Default 1 MiB, up to 16 MiB.
	MaxBody int64
	// ReadTimeout is how long a body may take to arrive. Default 10 s, 10 ms to 10 min. If the
	// ResponseWriter accepts no deadline, only http.Server.ReadTimeout stops a silent sender.
	ReadTimeout time.Duration
	// Key identifies a delivery. Default [KeyID].
	Key KeyFrom
	// SemanticKey is a second key, for senders that may send one event under two ids. After one of
	// them took effect, others are duplicates of which nothing is kept. If ids are not signed and
	// Key is [KeyID], which a [Reconciler] needs, set it to [KeyBody](). Default none.
	SemanticKey KeyFrom
	// Fingerprint is what must be equal whenever the key comes. Default: the raw body, or canonical
	// JSON without the [Sender]'s Volatile members.
	Fingerprint FingerprintFrom
	// Keep names headers to keep beside Content-Type and those of the scheme (event type, retry
	// count). Cookies, credentials and signatures are refused.
	Keep []string
	// Now is the clock for timestamps, for tests. Default [time.Now].
	Now func() time.Time
	// Hooks receive each refusal of [Verifier.Read]. Default: log to [log/slog.Default].
	Hooks pawl.Hooks
}

const (
	mebibyte         = 1 << 20
	mostBody         = 16 * mebibyte
	longestTolerance = day
)

// A Verifier verifies deliveries of one sender. It is safe for concurrent use.
type Verifier struct{ cfg Config }

// Format writes the scheme's name for every verb, never a secret.
func (v *Verifier) Format(f fmt.State, _ rune) {
	if v == nil || v.cfg.Scheme == nil {
		_, _ = io.WriteString(f, "webhook verifier")
		return
	}
	_, _ = io.WriteString(f, "webhook verifier of "+v.cfg.Scheme.Name())
}

// New returns a verifier, or [pawl.ErrArgumentInvalid], also for a missing or short secret.
func New(c Config) (*Verifier, error) {
	c, err := c.complete()
	if err != nil {
		return nil, invalid("webhook.new", err)
	}
	return &Verifier{c}, nil
}

func invalid(op string, err error) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: err}
}

func (c Config) complete() (Config, error) {
	if c.Scheme == nil {
		return c, errors.New("the Scheme is missing")
	}
	if err := c.Scheme.check(); err != nil {
		return c, fmt.Errorf("scheme %s: %w", c.Scheme.Name(), err)
	}
	c.Tolerance = cmp.Or(c.Tolerance, 5*time.Minute)
	c.MaxBody = cmp.Or(c.MaxBody, mebibyte)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 10*time.Second)
	switch {
	case c.Tolerance < time.Second || c.Tolerance > longestTolerance:
		return c, fmt.Errorf("the Tolerance is %s; 1 s to 24 h are allowed", c.Tolerance)
	case c.MaxBody < 1 || c.MaxBody > mostBody:
		return c, fmt.Errorf("the MaxBody is %d; 1 to %d are allowed", c.MaxBody, mostBody)
	case c.ReadTimeout < 10*time.Millisecond || c.ReadTimeout > 10*time.Minute:
		return c, fmt.Errorf("the ReadTimeout is %s; 10 ms to 10 min are allowed", c.ReadTimeout)
	}
	if c.Key == nil {
		c.Key = KeyID()
	}
	for _, k := range []KeyFrom{c.Key, c.SemanticKey} {
		if k == nil {
			continue
		}
		if err := k.check(); err != nil {
			return c, err
		}
	}
	if c.Fingerprint == nil {
		c.Fingerprint = usualFingerprint(c.Scheme.Sender())
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var err error
	c.Keep, err = c.kept()
	return c, err
}

func usualFingerprint(s Sender) FingerprintFrom {
	if len(s.Volatile) > 0 || s.Reencoded {
		return IgnoreFields(s.Volatile...)
	}
	return func(body []byte) pawl.Fingerprint { return pawl.FingerprintOf(body) }
}

// private are headers with credentials, which must not be stored.
var private = []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"}

func (c Config) kept() ([]string, error) {
	all := append([]string{"Content-Type"}, c.Scheme.keeps()...)
	for _, name := range c.Keep {
		name = http.CanonicalHeaderKey(name)
		if name == "" || !isToken(name) {
			return nil, fmt.Errorf("%q, in Keep, is not the name of a header", name)
		}
		if slices.Contains(private, name) || name == c.Scheme.headers(http.Header{name: {"x"}})[0] || strings.Contains(name, "Signature") {
			return nil, fmt.Errorf("the header %s, in Keep, is a credential or a signature and must not be stored", name)
		}
		all = append(all, name)
	}
	return all, nil
}

// Verified is a delivery with a valid signature and, if the scheme signs one, a valid timestamp.
type Verified struct {
	// Scheme is the scheme's name, and Secret the name of the secret that verified it.
	Scheme, Secret string
	// Key identifies the delivery. If it has none, Key is "" and KeyFault says why, for logs. Do
	// not handle such a delivery; keep it for an operator.
	Key, KeyFault string
	// Fault is the panic of a function of the Config. The delivery then has no Key, and a
	// [Receiver] makes it a dead letter.
	Fault error
	// SemanticKey is the second key, "" if none. One that cannot be stored is its SHA-256.
	SemanticKey string
	// ID is the sender's id, for people and logs; "" if there is none.
	ID string
	// IDSigned reports whether the signature covers the ID. If not (GitHub, Shopify), an observer
	// can replay a request under another id. Only a key from the body detects that.
	IDSigned bool
	// SentAt is the signed timestamp; zero if the scheme signs none.
	SentAt time.Time
	// UnsignedHeaders are the headers of the scheme and Config.Keep, by canonical name, joined by
	// ", ". A handler gets them as Delivery.Attributes. No signature covers them: an observer can
	// replay a request with another event type or shop. Decide by the Body.
	UnsignedHeaders map[string]string
	// Fingerprint of the body.
	Fingerprint pawl.Fingerprint
	// Body is the signed body, unchanged.
	Body []byte
}

// Verify checks the headers, with canonical names, and the raw body of a request. An error is a
// [Refusal], or a panic of Config.Now.
func (v *Verifier) Verify(h http.Header, body []byte) (Verified, error) {
	if err := v.inspect(h); err != nil {
		return Verified{}, err
	}
	switch n := int64(len(body)); {
	case n == 0:
		return Verified{}, refuse(ReasonBodyEmpty, "")
	case n > v.cfg.MaxBody:
		return Verified{}, v.tooLarge()
	}
	p, err := v.cfg.Scheme.verify(h, body)
	if err != nil {
		return Verified{}, err
	}
	if err := v.timely(p.at); err != nil {
		return Verified{}, err
	}
	return v.describe(p, h, body), nil
}

// Vouched returns a delivery without a signature from a trusted source, such as the sender's API. h
// has canonical names. by names the source, for Verified.Secret. An error is a [Refusal].
func (v *Verifier) Vouched(by string, h http.Header, body []byte) (Verified, error) {
	if int64(len(body)) > v.cfg.MaxBody {
		return Verified{}, v.tooLarge()
	}
	p, err := v.cfg.Scheme.named(h, body)
	if err != nil {
		return Verified{}, err
	}
	p.secret, p.at = by, 0
	return v.describe(p, h, body), nil
}

// inspect refuses requests by their headers alone.
func (v *Verifier) inspect(h http.Header) error {
	for _, encoding := range h.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return refuse(ReasonContentEncoding, "")
		}
	}
	for _, name := range v.cfg.Scheme.headers(h) {
		if _, err := only(h, name); err != nil {
			return err
		}
	}
	for _, name := range v.cfg.Keep {
		size := 0
		for _, value := range h.Values(name) {
			size += len(value)
		}
		if size > longestHeader {
			return refuse(ReasonHeaderTooLarge, fmt.Sprintf("%s has %d octets, at most %d are allowed", name, size, longestHeader))
		}
	}
	return nil
}

// timely checks a signed timestamp, after the signature was verified.
func (v *Verifier) timely(at int64) error {
	if at == 0 {
		return nil
	}
	now, err := callback.Get("Config.Now", v.cfg.Now)
	if err != nil {
		return fmt.Errorf("webhook.verify: %w", err)
	}
	switch late := now.Sub(time.Unix(at, 0)); {
	case late > v.cfg.Tolerance:
		return refuse(ReasonTimestampStale, fmt.Sprintf("%s before now, at most %s are allowed", late.Round(time.Second), v.cfg.Tolerance))
	case late < -v.cfg.Tolerance:
		return refuse(ReasonTimestampFuture, fmt.Sprintf("%s after now, at most %s are allowed", late.Abs().Round(time.Second), v.cfg.Tolerance))
	}
	return nil
}

func (v *Verifier) describe(p signatureInfo, h http.Header, body []byte) Verified {
	m := Verified{Scheme: v.cfg.Scheme.Name(), Secret: p.secret, Key: p.key, ID: p.id, IDSigned: p.idSigned, Body: body,
		UnsignedHeaders: map[string]string{}}
	if p.at != 0 {
		m.SentAt = time.Unix(p.at, 0).UTC()
	}
	for _, name := range v.cfg.Keep {
		if values := h.Values(name); len(values) > 0 {
			m.UnsignedHeaders[name] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		}
	}
	if m.Fault = v.name(&m); m.Fault != nil {
		m.Key, m.KeyFault, m.SemanticKey, m.Fingerprint = "", m.Fault.Error(), "", pawl.FingerprintOf(body)
	}
	return m
}

// name sets fingerprint and keys. An error is a panic of one of their functions.
func (v *Verifier) name(m *Verified) (err error) {
	if m.Fingerprint, err = callback.Get("Config.Fingerprint", func() pawl.Fingerprint { return v.cfg.Fingerprint(m.Body) }); err != nil {
		return err
	}
	if v.cfg.SemanticKey != nil {
		key, err := keyOf("Config.SemanticKey", v.cfg.SemanticKey, *m)
		switch {
		case callback.Panicked(err):
			return err
		case err != nil || key == "":
		case fit(*m, key) != nil:
			m.SemanticKey = "sha256:" + pawl.FingerprintOf([]byte(key)).String()
		default:
			m.SemanticKey = key
		}
	}
	key, err := keyOf("Config.Key", v.cfg.Key, *m)
	if callback.Panicked(err) {
		return err
	}
	if err == nil {
		err = fit(*m, key)
	}
	if m.Key = key; err != nil {
		m.Key, m.KeyFault = "", err.Error()
	}
	return nil
}
