package webhook

import (
	"net/http"
	"strings"

	"github.com/pawl-go/pawl"
)

// Identify finds the keys and the fingerprint of a stored delivery as the receiver would now; see
// [pawl.Identifier]. It has only the stored headers, [Verified.UnsignedHeaders]. If another header
// carried the id, [KeyID] finds nothing and the original key stays.
func (r *Receiver) Identify(d pawl.Delivery) pawl.Delivery {
	h := http.Header{}
	for name, value := range d.Attributes {
		h.Set(name, value)
	}
	p, err := r.verifier.cfg.Scheme.named(h, d.Payload)
	if err != nil {
		p = signatureInfo{}
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
