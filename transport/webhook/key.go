package webhook

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// A KeyFrom finds the key of a verified delivery, which is equal each time the delivery comes. Make
// one with [KeyID], [KeyJSON], [KeyBody] or [KeyFunc].
type KeyFrom interface {
	keyOf(m Verified) (string, error)
	check() error
}

// KeyID uses the id of the scheme: webhook-id, svix-id, X-GitHub-Delivery, X-Shopify-Webhook-Id
// with the topic, the IDHeader of an [HMAC], or the event's id in the body of Stripe, Mux and
// Slack.
func KeyID() KeyFrom { return keyID{} }

type keyID struct{}

func (keyID) check() error { return nil }

func (keyID) keyOf(m Verified) (string, error) {
	if m.Key == "" {
		return "", errors.New("the sender gave no id")
	}
	return m.Key, nil
}

// KeyJSON uses the string or number at an RFC 6901 pointer of the JSON body, such as
// "/data/object/id". Several are joined by [pawl.Key] and must all exist.
func KeyJSON(pointers ...string) KeyFrom { return keyJSON(pointers) }

type keyJSON []string

func (k keyJSON) check() error {
	if len(k) == 0 {
		return errors.New("KeyJSON needs a pointer")
	}
	for _, p := range k {
		if err := jsonptr.Check(p); err != nil {
			return err
		}
	}
	return nil
}

func (k keyJSON) keyOf(m Verified) (string, error) {
	document, err := jsonptr.Decode(m.Body)
	if err != nil {
		return "", errors.New("the body is not one JSON document")
	}
	parts := make([]string, 0, len(k))
	for _, p := range k {
		text, ok := jsonptr.TextIn(document, p)
		if !ok {
			return "", fmt.Errorf("the body has neither string nor number at %s", p)
		}
		parts = append(parts, text)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return pawl.Key(parts...), nil
}

// KeyBody uses the SHA-256 of the raw body: equal bodies are one delivery. Do not use it if two
// distinct deliveries may be equal or if a retry changes the body.
func KeyBody() KeyFrom {
	return KeyFunc(func(m Verified) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(m.Body)) })
}

// KeyFunc makes a [KeyFrom] of a function. "" means that the delivery has no key.
type KeyFunc func(m Verified) string

func (k KeyFunc) check() error {
	if k == nil {
		return errors.New("KeyFunc is nil")
	}
	return nil
}

func (k KeyFunc) keyOf(m Verified) (string, error) {
	if key := k(m); key != "" {
		return key, nil
	}
	return "", errors.New("KeyFunc returned no key")
}

// keyOf calls from. If it panics, the error names the field what.
func keyOf(what string, from KeyFrom, m Verified) (key string, err error) {
	err = callback.Do(what, func() (err error) {
		key, err = from.keyOf(m)
		return err
	})
	return key, err
}

// fit returns the reason why a key cannot be stored.
func fit(m Verified, key string) error {
	return pawl.Intent{Scope: m.Scheme, Key: key, Fingerprint: pawl.FingerprintOf()}.Validate()
}
