package consumer

import (
	"encoding/base64"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

// Headers of a delivery under an inbox key of Pawl's own, for its identification at a retry.
const (
	headerSourceKey   = "pawl-source-key" // as the source found it
	headerKeyFault    = "pawl-key-fault"
	headerVerifiedBy  = "pawl-verified-by"
	headerFingerprint = "pawl-fingerprint" // the source's, in hexadecimal
	// Texts that PostgreSQL cannot store unchanged, in base64, by name.
	headerExact = "pawl-exact"
	// True: parts were not kept, so the delivery can be neither identified nor handled again.
	headerPartial = "pawl-partial"

	// Sizes of a payload and of texts that were not kept, and the SHA-256 in hexadecimal.
	headerPayloadOctets = "pawl-payload-octets"
	headerPayloadSHA256 = "pawl-payload-sha256"
	headerTextOctets    = "pawl-text-octets"
)

// addIdentity adds the headers that a delivery needs, beside its envelope and attributes, to be
// identified again. Texts that PostgreSQL cannot store unchanged are added in base64.
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
