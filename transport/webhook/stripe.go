package webhook

import (
	"crypto/hmac"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// Stripe is the scheme of Stripe-Signature: t=, v1=, and several v1 during a rotation. The
// timestamp is signed. The id is the event's, in the signed body. v0 is ignored.
func Stripe(secrets ...Secret) Scheme { return newTimed("stripe", "Stripe-Signature", secrets) }

// Mux is the scheme of Mux-Signature, which has the form of Stripe-Signature.
func Mux(secrets ...Secret) Scheme { return newTimed("mux", "Mux-Signature", secrets) }

// timed is a scheme with timestamp and signatures in one header, and the id in the body.
type timed struct {
	signer
	header string
}

const timedID = "/id"

func newTimed(name, header string, secrets []Secret) Scheme {
	s := &timed{signer: signer{name: name}, header: header}
	s.keys, s.err = readSecrets(secrets, rawSecret)
	return s
}

func (s *timed) headers(http.Header) []string { return []string{s.header} }
func (s *timed) keeps() []string              { return nil }

func (s *timed) verify(h http.Header, body []byte) (p signatureInfo, err error) {
	text, err := only(h, s.header)
	if err != nil {
		return signatureInfo{}, err
	}
	timestamp, signatures, err := readTimed(text)
	if err != nil {
		return signatureInfo{}, err
	}
	if p.at, err = readTimestamp(timestamp); err != nil {
		return signatureInfo{}, err
	}
	for _, k := range s.keys {
		want := []byte(s.mac(k, timestamp, body))
		for _, one := range signatures {
			if hmac.Equal([]byte(one), want) && p.secret == "" {
				p.secret = k.name
			}
		}
	}
	if p.secret == "" {
		return signatureInfo{}, mismatch(len(signatures), len(s.keys))
	}
	named, err := s.named(h, body)
	p.id, p.idSigned, p.key = named.id, named.idSigned, named.key
	return p, err
}

func (s *timed) named(_ http.Header, body []byte) (p signatureInfo, err error) {
	p.id, p.idSigned = jsonptr.TextAt(body, timedID)
	p.key = p.id
	return p, nil
}

// readTimed reads t=SECONDS,v1=HEX,... with one t.
func readTimed(text string) (timestamp string, signatures []string, err error) {
	if n := strings.Count(text, ",") + 1; n > mostSignatures {
		return "", nil, refuse(ReasonTooManySignatures, fmt.Sprintf("%d parts, at most %d are allowed", n, mostSignatures))
	}
	times := 0
	for part := range strings.SplitSeq(text, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			times++
			timestamp = value
		case "v1":
			signatures = append(signatures, value)
		}
	}
	switch {
	case times != 1:
		return "", nil, refuse(ReasonTimestampMalformed, fmt.Sprintf("t= occurs %d times", times))
	case len(signatures) == 0:
		return "", nil, refuse(ReasonSignatureMalformed, "there is no v1=")
	}
	return timestamp, signatures, nil
}

func (s *timed) mac(k key, timestamp string, body []byte) string {
	m := hmac.New(SHA256.new, k.mac)
	m.Write([]byte(timestamp + "."))
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}

// Sign signs with every secret.
func (s *timed) Sign(id string, at time.Time, body []byte) (http.Header, error) {
	if s.err != nil {
		return nil, invalid("webhook.sign", s.err)
	}
	if err := idInBody(timedID, id, body); err != nil {
		return nil, invalid("webhook.sign", err)
	}
	text := "t=" + seconds(at)
	for _, k := range s.keys {
		text += ",v1=" + s.mac(k, seconds(at), body)
	}
	return http.Header{s.header: {text}}, nil
}
