package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// A Hash is the hash function of an HMAC.
type Hash string

const (
	SHA256 Hash = "sha256"
	SHA512 Hash = "sha512"
)

func (h Hash) new() hash.Hash {
	if h == SHA512 {
		return sha512.New()
	}
	return sha256.New()
}

// An Encoding is the text form of a signature. Each signature has exactly one: lower-case hex, or
// padded base64 of the standard alphabet.
type Encoding string

const (
	Hex    Encoding = "hex"
	Base64 Encoding = "base64"
)

func (e Encoding) text(mac []byte) string {
	if e == Base64 {
		return base64.StdEncoding.EncodeToString(mac)
	}
	return hex.EncodeToString(mac)
}

// HMACConfig describes a sender that sends one HMAC signature in one header.
type HMACConfig struct {
	// Name of the sender, in logs. One of [Senders] selects its settings. Default "hmac".
	Name string
	// Header carries the signature. Required.
	Header string
	// Prefix precedes the signature, as in "sha256=". Default none.
	Prefix string
	// Hash is SHA256 (default) or SHA512.
	Hash Hash
	// Encoding is Hex (default) or Base64.
	Encoding Encoding
	// TimestampHeader carries seconds since 1970. Signed must include it. Default none:
	// requests can then be replayed forever.
	TimestampHeader string
	// IDHeader carries the sender's id of the delivery. Default none: set Config.Key.
	IDHeader string
	// Signed is the signed text, with {timestamp}, {id} and, at the end, {body}. Default
	// "{timestamp}.{body}" with a TimestampHeader, else "{body}".
	Signed string
}

// HMAC is the scheme for senders without a scheme in this package.
func HMAC(c HMACConfig, secrets ...Secret) Scheme {
	s := &hmacScheme{c: c}
	s.err = s.complete(secrets)
	return s
}

type hmacScheme struct {
	signer
	c      HMACConfig
	signed template
	topic  string // if set, the key is made of this header and the id
	inBody string // JSON pointer of the id in the body; "" if a header has it
	kept   []string
}

func (s *hmacScheme) complete(secrets []Secret) (err error) {
	c := &s.c
	s.name, c.Hash, c.Encoding = cmp.Or(c.Name, "hmac"), cmp.Or(c.Hash, SHA256), cmp.Or(c.Encoding, Hex)
	if c.TimestampHeader != "" {
		c.Signed = cmp.Or(c.Signed, "{timestamp}.{body}")
	}
	c.Signed = cmp.Or(c.Signed, "{body}")
	for _, name := range []*string{&c.Header, &c.TimestampHeader, &c.IDHeader} {
		if !isToken(*name) {
			return errors.New("a header name contains characters that are not allowed")
		}
		*name = http.CanonicalHeaderKey(*name)
	}
	switch {
	case len(s.name) > longestName:
		return fmt.Errorf("the Name has %d octets; at most %d are allowed", len(s.name), longestName)
	case c.Header == "":
		return errors.New("the Header that carries the signature is missing")
	case c.Hash != SHA256 && c.Hash != SHA512:
		return fmt.Errorf("the hash %q is unknown; %s and %s are known", c.Hash, SHA256, SHA512)
	case c.Encoding != Hex && c.Encoding != Base64:
		return fmt.Errorf("the encoding %q is unknown; %s and %s are known", c.Encoding, Hex, Base64)
	}
	if s.signed, err = readTemplate(c.Signed, c.TimestampHeader != "", c.IDHeader != ""); err != nil {
		return err
	}
	s.keys, err = readSecrets(secrets, rawSecret)
	return err
}

func (s *hmacScheme) headers(http.Header) []string {
	all := []string{s.c.Header}
	if s.c.TimestampHeader != "" {
		all = append(all, s.c.TimestampHeader)
	}
	if s.signed.afterID() != "" {
		all = append(all, s.c.IDHeader)
	}
	return all
}

func (s *hmacScheme) keeps() []string {
	all := s.kept
	if s.c.IDHeader != "" {
		all = append([]string{s.c.IDHeader}, all...)
	}
	return all
}

func (s *hmacScheme) mac(k key, id, timestamp string, body []byte) string {
	m := hmac.New(s.c.Hash.new, k.mac)
	s.signed.write(m, id, timestamp, body)
	return s.c.Encoding.text(m.Sum(nil))
}

func (s *hmacScheme) verify(h http.Header, body []byte) (p signatureInfo, err error) {
	signature, err := only(h, s.c.Header)
	if err != nil {
		return signatureInfo{}, err
	}
	var timestamp string
	if s.c.TimestampHeader != "" {
		if timestamp, err = only(h, s.c.TimestampHeader); err != nil {
			return signatureInfo{}, err
		}
		if p.at, err = readTimestamp(timestamp); err != nil {
			return signatureInfo{}, err
		}
	}
	if err := s.readID(h, &p); err != nil {
		return signatureInfo{}, err
	}
	text, found := strings.CutPrefix(signature, s.c.Prefix)
	if want := s.c.Encoding.text(make([]byte, s.c.Hash.new().Size())); !found || len(text) != len(want) {
		return signatureInfo{}, refuse(ReasonSignatureMalformed, fmt.Sprintf("%s has %d octets instead of %d", s.c.Header, len(signature), len(s.c.Prefix)+len(want)))
	}
	// Checks all keys, so that the duration does not show which one matched.
	for _, k := range s.keys {
		if hmac.Equal([]byte(text), []byte(s.mac(k, p.id, timestamp, body))) && p.secret == "" {
			p.secret = k.name
		}
	}
	if p.secret == "" {
		return signatureInfo{}, mismatch(1, len(s.keys))
	}
	s.identify(h, body, &p)
	return p, nil
}

func (s *hmacScheme) named(h http.Header, body []byte) (p signatureInfo, err error) {
	if err := s.readID(h, &p); err != nil {
		return signatureInfo{}, err
	}
	s.identify(h, body, &p)
	return p, nil
}

// readID reads the id from its header. A missing id is refused only if it is signed.
func (s *hmacScheme) readID(h http.Header, p *signatureInfo) (err error) {
	if s.c.IDHeader == "" {
		return nil
	}
	p.idSigned = s.signed.afterID() != ""
	if !p.idSigned && len(h.Values(s.c.IDHeader)) == 0 {
		return nil
	}
	if p.id, err = only(h, s.c.IDHeader); err != nil {
		return err
	}
	return checkID(p.id, s.signed.afterID())
}

func (s *hmacScheme) identify(h http.Header, body []byte, p *signatureInfo) {
	if s.inBody != "" {
		p.id, _ = jsonptr.TextAt(body, s.inBody)
		p.idSigned = p.id != ""
	}
	if p.key = p.id; s.topic != "" && p.id != "" {
		p.key = pawl.Key(h.Get(s.topic), p.id)
	}
}

// Sign signs with the first secret.
func (s *hmacScheme) Sign(id string, at time.Time, body []byte) (http.Header, error) {
	if s.err != nil {
		return nil, invalid("webhook.sign", s.err)
	}
	h := http.Header{}
	switch {
	case s.c.IDHeader != "":
		if err := checkID(id, s.signed.afterID()); err != nil {
			return nil, invalid("webhook.sign", err)
		}
		h.Set(s.c.IDHeader, id)
	default:
		if err := idInBody(s.inBody, id, body); err != nil {
			return nil, invalid("webhook.sign", err)
		}
	}
	if s.c.TimestampHeader != "" {
		h.Set(s.c.TimestampHeader, seconds(at))
	}
	h.Set(s.c.Header, s.c.Prefix+s.mac(s.keys[0], id, seconds(at), body))
	return h, nil
}

// idInBody returns an error if an id for which the scheme has no header is not the one in the body.
func idInBody(pointer, id string, body []byte) error {
	if id == "" {
		return nil
	}
	if pointer == "" {
		return errors.New("this scheme has no header for an id")
	}
	if in, _ := jsonptr.TextAt(body, pointer); in != id {
		return fmt.Errorf("this scheme has its id in the body, at %s, and that id is different", pointer)
	}
	return nil
}

// isToken reports whether text is empty or a valid header name (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) })
}
