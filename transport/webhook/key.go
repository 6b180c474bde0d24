package webhook

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// A KeyFrom finds the key of a verified delivery: what it is remembered by, the same each time it comes. It is made by [KeyID],
// [KeyJSON], [KeyBody] or [KeyFunc].
type KeyFrom interface {
	keyOf(m Verified) (string, error)
	check() error
}

// KeyID takes the id of the scheme: webhook-id, svix-id, X-GitHub-Delivery, X-Shopify-Topic with
// X-Shopify-Webhook-Id, the event's id in Stripe's, Mux' and Slack's body, and the IDHeader of an
// [HMAC].
func KeyID() KeyFrom { return keyID{} }

type keyID struct{}

func (keyID) check() error { return nil }

func (keyID) keyOf(m Verified) (string, error) {
	if m.Key == "" {
		return "", errors.New("the sender gave no id")
	}
	return m.Key, nil
}

// KeyJSON takes the key from the JSON body, at RFC 6901 pointers such as "/data/object/id". One pointer is the key as it
// stands there, string or number; several are joined by [pawl.Key] and must all be there.
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

// KeyBody takes the SHA-256 of the raw body: equal bodies are one delivery. Good where bodies hold an id or a time of their
// own, wrong where two honest deliveries may be alike or a retry changes the body.
func KeyBody() KeyFrom { return keyBody{} }

type keyBody struct{}

func (keyBody) check() error { return nil }

func (keyBody) keyOf(m Verified) (string, error) {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(m.Body)), nil
}

// KeyFunc makes a [KeyFrom] of a function. "" means that this delivery has no such key.
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
	return "", errors.New("KeyFunc found none")
}

// keyOf asks for a key. what names the field in the error of a panic.
func keyOf(what string, from KeyFrom, m Verified) (key string, err error) {
	err = callback.Do(what, func() (err error) {
		key, err = from.keyOf(m)
		return err
	})
	return key, err
}

// fit says why a key cannot be stored.
func fit(m Verified, key string) error {
	return pawl.Intent{Scope: m.Scheme, Key: key, Fingerprint: pawl.FingerprintOf()}.Validate()
}
