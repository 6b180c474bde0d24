package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// StandardWebhooks is the scheme of standardwebhooks.com, specification 1.0.0: v1 (HMAC-SHA256,
// secrets whsec_) and v1a (ed25519, keys whpk_), with several signatures in one header. Id and
// timestamp are signed. An id cannot contain a full stop, which separates the signed parts.
func StandardWebhooks(secrets ...Secret) Scheme { return newStandard("standard", "Webhook-", secrets) }

// Svix is [StandardWebhooks] with the headers svix-id, svix-timestamp and svix-signature. Some
// plans can send the neutral webhook-id, webhook-timestamp and webhook-signature
// (https://docs.svix.com/receiving/verifying-payloads/how-manual): use [StandardWebhooks] with the
// same secret for them.
func Svix(secrets ...Secret) Scheme { return newStandard("svix", "Svix-", secrets) }

type standard struct {
	signer
	prefix string
}

func newStandard(name, prefix string, secrets []Secret) Scheme {
	s := &standard{signer: signer{name: name}, prefix: prefix}
	s.keys, s.err = readSecrets(secrets, standardSecret)
	return s
}

func (s *standard) headers(http.Header) []string {
	return []string{s.prefix + "Signature", s.prefix + "Id", s.prefix + "Timestamp"}
}

func (s *standard) keeps() []string { return []string{s.prefix + "Id", s.prefix + "Timestamp"} }

func (s *standard) verify(h http.Header, body []byte) (signatureInfo, error) {
	var values [3]string
	for i, name := range s.headers(h) {
		var err error
		if values[i], err = only(h, name); err != nil {
			return signatureInfo{}, err
		}
	}
	signature, id, timestamp := values[0], values[1], values[2]
	if err := checkID(id, "."); err != nil {
		return signatureInfo{}, err
	}
	at, err := readTimestamp(timestamp)
	if err != nil {
		return signatureInfo{}, err
	}
	if n := strings.Count(signature, " ") + 1; n > mostSignatures {
		return signatureInfo{}, refuse(ReasonTooManySignatures, fmt.Sprintf("%d, at most %d are allowed", n, mostSignatures))
	}
	name, err := s.match(strings.Split(signature, " "), signed(id, timestamp, body))
	return signatureInfo{secret: name, id: id, key: id, idSigned: true, at: at}, err
}

func (s *standard) named(h http.Header, _ []byte) (signatureInfo, error) {
	id, err := only(h, s.prefix+"Id")
	if err == nil {
		err = checkID(id, ".")
	}
	return signatureInfo{id: id, key: id, idSigned: true}, err
}

// match returns the name of the secret that made one of the signatures.
func (s *standard) match(signatures []string, content []byte) (name string, err error) {
	known := 0
	for _, one := range signatures {
		version, text, found := strings.Cut(one, ",")
		if !found {
			return "", refuse(ReasonSignatureMalformed, "not a version, a comma and a signature, with one space between two")
		}
		if version != "v1" && version != "v1a" {
			continue // another version, perhaps a future one
		}
		known++
		for _, k := range s.keys {
			if k.made(version, text, content) && name == "" {
				name = k.name
			}
		}
	}
	switch {
	case known == 0:
		return "", refuse(ReasonSignatureMalformed, "neither v1 nor v1a")
	case name == "":
		return "", mismatch(known, len(s.keys))
	}
	return name, nil
}

func (k key) made(version, text string, content []byte) bool {
	if version == "v1" {
		return k.mac != nil && hmac.Equal([]byte(text), []byte(v1(k.mac, content)))
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	return k.public != nil && err == nil && base64.StdEncoding.EncodeToString(raw) == text && ed25519.Verify(k.public, content, raw)
}

func v1(secret, content []byte) string {
	m := hmac.New(SHA256.new, secret)
	m.Write(content)
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func signed(id, timestamp string, body []byte) []byte {
	return append([]byte(id+"."+timestamp+"."), body...)
}

// Sign signs with every secret except public keys.
func (s *standard) Sign(id string, at time.Time, body []byte) (http.Header, error) {
	if s.err != nil {
		return nil, invalid("webhook.sign", s.err)
	}
	if err := checkID(id, "."); err != nil {
		return nil, invalid("webhook.sign", err)
	}
	var all []string
	content := signed(id, seconds(at), body)
	for _, k := range s.keys {
		switch {
		case k.mac != nil:
			all = append(all, "v1,"+v1(k.mac, content))
		case k.private != nil:
			all = append(all, "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, content)))
		}
	}
	if len(all) == 0 {
		return nil, invalid("webhook.sign", errors.New("a public key verifies only; signing needs whsec_ or whsk_"))
	}
	h := http.Header{}
	h.Set(s.prefix+"Id", id)
	h.Set(s.prefix+"Timestamp", seconds(at))
	h.Set(s.prefix+"Signature", strings.Join(all, " "))
	return h, nil
}
