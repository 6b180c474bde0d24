package contract

import (
	"github.com/pawl-go/pawl"
)

// DeliveryKeepArgs are the arguments of delivery_keep.
type DeliveryKeepArgs struct {
	Consumer, Key string
	Payload       []byte
	Headers       map[string]any
	VerifiedBy    string
	Hash          pawl.Fingerprint
	Storage       *Storage
}

// Storage says how a kept delivery would be stored.
type Storage struct {
	Queue       string         `json:"queue"`
	Kind        string         `json:"kind"`
	Headers     map[string]any `json:"headers,omitempty"`
	Lane        string         `json:"lane,omitempty"`
	LanePolicy  string         `json:"lane_policy,omitempty"`
	MaxAttempts int            `json:"max_attempts,omitempty"`
	Semantic    string         `json:"semantic,omitempty"` // second key in the inbox
}

// DeliveryKeepStep calls pawl_v1.delivery_keep.
func DeliveryKeepStep(a DeliveryKeepArgs) Step {
	o := Options{}
	set(o, "verified_by", a.VerifiedBy)
	if len(a.Headers) > 0 {
		o["headers"] = a.Headers
	}
	if a.Storage != nil {
		o["hash"], o["stored_as"] = a.Hash.String(), a.Storage
	}
	return step("delivery.keep", "select k.outcome from pawl_v1.delivery_keep($1, $2, $3, $4::pg_catalog.jsonb) as k",
		[]any{a.Consumer, a.Key, octets(a.Payload), o.text()}, new(string))
}
