package consumer

import (
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// PayloadKey is the key that the producer sent, or else the SHA-256 of the payload: for [Config.Key] where producers send no key. Two
// messages that mean two things and read the same are one then.
func PayloadKey(d pawl.Delivery) string {
	if d.Key != "" {
		return d.Key
	}
	return "sha256:" + pawl.FingerprintOf(d.Payload).String()
}

// printOf is the fingerprint of a delivery's payload, unless the configuration has another.
func printOf(d pawl.Delivery) pawl.Fingerprint {
	if d.Fingerprint != (pawl.Fingerprint{}) {
		return d.Fingerprint
	}
	return pawl.FingerprintOf(d.Payload)
}

// reservedPrefix begins inbox keys of our own; a sender's key must not.
const reservedPrefix = "pawl/"

// ownKey reports whether an inbox key is one of our own: its delivery was not claimed under the key
// of its intent.
func ownKey(inboxKey string) bool { return strings.HasPrefix(inboxKey, reservedPrefix) }

// semanticPrefix begins the inbox keys that stand for semantic keys.
const semanticPrefix = reservedPrefix + "semantic/"

// workingPrefix begins the inbox keys that stand for semantic keys of which a [Handle] is at work.
const workingPrefix = reservedPrefix + "working/"

// workingOf is what the inbox knows of the job that is at work for a semantic key.
func (c *Consumer) workingOf(d pawl.Delivery) pawl.Intent { return c.nameOf(workingPrefix, d) }

// semanticOf is what the inbox remembers of a semantic key. Payloads under it may differ, so they do not count.
func (c *Consumer) semanticOf(d pawl.Delivery) pawl.Intent { return c.nameOf(semanticPrefix, d) }

func (c *Consumer) nameOf(prefix string, d pawl.Delivery) pawl.Intent {
	return pawl.Intent{Scope: c.cfg.Name, Key: semanticName(prefix, d.SemanticKey), Fingerprint: pawl.FingerprintOf()}
}

// semanticName is the inbox key that stands for a semantic key.
func semanticName(prefix, semanticKey string) string {
	if key := prefix + semanticKey; len(key) <= pawl.MaxKey {
		return key
	}
	return prefix + pawl.FingerprintOf([]byte(semanticKey)).String()
}

// sequenceOf is a delivery's number at its gate; nil if it has none.
func (c *Consumer) sequenceOf(d pawl.Delivery) (*delivery.Sequence, error) {
	g := c.handler.gate
	if g == nil {
		return nil, nil
	}
	resource, seq, err := g.Of(d)
	if err != nil {
		return nil, &pawl.Error{Op: "consumer.sequence_gate", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	if resource == "" {
		return nil, nil
	}
	probe := pawl.Intent{Scope: resource, Key: "any", Fingerprint: pawl.FingerprintOf()}
	return &delivery.Sequence{Consumer: c.cfg.Name, Resource: resource, Seq: seq, Mode: string(g.Mode), First: g.First, HoldLimit: g.HoldLimit}, probe.Validate()
}
