package webhook

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
)

// A Secret is a sender's signing key. Configure two during a rotation; the first signs if only one
// signature is sent. It prints, logs and encodes as its name.
type Secret struct {
	// Name identifies the secret in logs and [Verified.Secret]. Default: its position, from "1".
	Name string
	// Value is the secret as the sender shows it.
	Value string
}

// String returns the name.
func (s Secret) String() string { return "secret " + strconv.Quote(s.Name) }

// GoString returns the name.
func (s Secret) GoString() string { return s.String() }

// Format writes the name for every verb: %x of a struct would bypass String.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue returns the name.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the name.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const (
	// mostSecrets bounds the work of one request.
	mostSecrets = 5
	// shortestSecret is the minimum length in octets of a secret used as it is: 128 random bits.
	shortestSecret = 16
	// A secret of Standard Webhooks has 24 to 64 octets (specification 1.0.0, signature scheme).
	shortestStandard, longestStandard = 24, 64
)

// A key is a parsed secret.
type key struct {
	name string
	*material
}

// material is behind a pointer because fmt prints unexported fields without calling their methods.
// It prints a pointer within a value as an address.
type material struct {
	mac     []byte             // HMAC
	public  ed25519.PublicKey  // v1a
	private ed25519.PrivateKey // v1a; nil if the key can only verify
}

// longestName bounds the names of a scheme and a secret, which are stored with a delivery.
const longestName = 100

// readSecrets parses secrets. Its errors name a secret and never contain it.
func readSecrets(secrets []Secret, read func(value string) (key, error)) ([]key, error) {
	if len(secrets) == 0 || len(secrets) > mostSecrets {
		return nil, fmt.Errorf("%d secrets were given; 1 to %d are allowed", len(secrets), mostSecrets)
	}
	keys, names := make([]key, 0, len(secrets)), map[string]bool{}
	for i, s := range secrets {
		s.Name = cmp.Or(s.Name, strconv.Itoa(i+1))
		if len(s.Name) > longestName {
			return nil, fmt.Errorf("the name of a secret has %d octets; at most %d are allowed", len(s.Name), longestName)
		}
		if names[s.Name] {
			return nil, fmt.Errorf("two secrets are named %q", s.Name)
		}
		names[s.Name] = true
		k, err := readSecret(s.Value, read)
		if err != nil {
			return nil, fmt.Errorf("%s %w", s, err)
		}
		k.name = s.Name
		keys = append(keys, k)
	}
	return keys, nil
}

func readSecret(value string, read func(value string) (key, error)) (key, error) {
	switch {
	case value == "":
		return key{}, errors.New("is empty")
	case strings.TrimSpace(value) != value:
		return key{}, errors.New("begins or ends with white space: is there a newline at the end of its file?")
	}
	return read(value)
}

func rawSecret(value string) (key, error) {
	if len(value) < shortestSecret {
		return key{}, fmt.Errorf("has %d octets; at least %d are required", len(value), shortestSecret)
	}
	return key{material: &material{mac: []byte(value)}}, nil
}

// standardSecret reads whsec_ (or no prefix), whpk_ and whsk_ with base64.
func standardSecret(value string) (key, error) {
	kind, text, found := strings.Cut(value, "_")
	if !found {
		kind, text = "whsec", value
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(raw) != text {
		return key{}, errors.New("is not whsec_, whpk_ or whsk_ with base64 behind it")
	}
	switch kind {
	case "whsec":
		if len(raw) < shortestStandard || len(raw) > longestStandard {
			return key{}, fmt.Errorf("has %d octets; Standard Webhooks requires %d to %d", len(raw), shortestStandard, longestStandard)
		}
		return key{material: &material{mac: raw}}, nil
	case "whpk":
		if len(raw) != ed25519.PublicKeySize {
			return key{}, fmt.Errorf("has %d octets; a public ed25519 key has %d", len(raw), ed25519.PublicKeySize)
		}
		return key{material: &material{public: raw}}, nil
	case "whsk":
		return privateKey(raw)
	}
	return key{}, errors.New("has an unknown prefix; whsec_, whpk_ and whsk_ are known")
}

// privateKey reads a seed, or a seed followed by its public key.
func privateKey(raw []byte) (key, error) {
	if len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize {
		return key{}, fmt.Errorf("has %d octets; a private ed25519 key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if len(raw) == ed25519.PrivateKeySize && !private.Equal(ed25519.PrivateKey(raw)) {
		return key{}, errors.New("holds a public key that is not its own")
	}
	return key{material: &material{public: private.Public().(ed25519.PublicKey), private: private}}, nil
}
