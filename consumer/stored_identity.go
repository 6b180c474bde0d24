package consumer

import (
	"encoding/base64"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// Names of the headers of a delivery under an inbox key of our own, for its identification when it
// is retried.
const (
	headerSourceKey   = "pawl-source-key" // as the source found it
	headerKeyFault    = "pawl-key-fault"
	headerVerifiedBy  = "pawl-verified-by"
	headerFingerprint = "pawl-fingerprint" // the source's, in hexadecimal
	headerExact       = "pawl-exact"       // texts of which PostgreSQL does not take all octets, in base64, by name
	headerPartial     = "pawl-partial"     // true: some of it was not kept, so it can be neither identified nor handled again

	headerPayloadOctets = "pawl-payload-octets" // of a payload that was not kept, and its SHA-256 in hexadecimal
	headerPayloadSHA256 = "pawl-payload-sha256"
	headerTextOctets    = "pawl-text-octets" // of texts that were not kept, together
)

// addIdentity adds what a delivery needs beside its envelope and attributes to be identified again:
// what the source found, and, of texts that PostgreSQL does not take as they came, the octets.
func addIdentity(h map[string]any, it item) {
	exact := map[string]any{}
	for name, value := range map[string]string{headerSourceKey: it.sent, headerKeyFault: it.KeyFault, headerVerifiedBy: it.VerifiedBy} {
		if value != "" {
			h[name] = text.Storable(value)
		}
	}
	for name, value := range map[string]string{headerSourceKey: it.sent, headerSemanticKey: it.SemanticKey, headerOrderingKey: it.OrderingKey,
		headerMessageID: it.MessageID, headerLog: it.Log, headerVerifiedBy: it.VerifiedBy} {
		addExact(exact, name, value)
	}
	for name, value := range it.Attributes {
		addExact(exact, headerAttributes+"/"+text.Storable(name), value)
	}
	if len(exact) > 0 {
		h[headerExact] = exact
	}
	if it.Fingerprint != (pawl.Fingerprint{}) {
		h[headerFingerprint] = it.Fingerprint.String()
	}
}

func addExact(to map[string]any, name, value string) {
	if text.Storable(value) != value {
		to[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
}
