package webhook

import (
	"net/http"
	"strings"

	"github.com/pawl-go/pawl"
)

// Identify finds the keys and the fingerprint of a stored delivery as the receiver would now; see
// [pawl.Identifier]. Of the headers it has those that were kept, [Verified.UnsignedHeaders]. An id
// that the sender gives in another header is not known any more, so [KeyID] finds nothing: the key
// that was found at first stays.
func (r *Receiver) Identify(d pawl.Delivery) pawl.Delivery {
	h := http.Header{}
	for name, value := range d.Attributes {
		h.Set(name, value)
	}
	p, err := r.verifier.cfg.Scheme.named(h, d.Payload)
	if err != nil {
		p = proof{}
	}
	_, p.secret, _ = strings.Cut(d.VerifiedBy, "/")
	if !d.SentAt.IsZero() {
		p.at = d.SentAt.Unix()
	}
	m := r.verifier.describe(p, h, d.Payload)
	d.Key, d.KeyFault, d.Fault, d.Fingerprint = m.Key, m.KeyFault, m.Fault, m.Fingerprint
	if m.SemanticKey != "" {
		d.SemanticKey = m.SemanticKey
	}
	return d
}
