package consumer

import (
	"strings"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/delivery"
)

// PayloadKey returns the producer's key, or else the SHA-256 of the payload. Use it as [Config.Key]
// if producers send no key. Two different messages with equal payloads then count as one.
func PayloadKey(d pawl.Delivery) string {
	if d.Key != "" {
		return d.Key
	}
	return "sha256:" + pawl.FingerprintOf(d.Payload).String()
}

// markKey returns the key of an intent in a filter, which consumers may share. It does not reveal
// the key of the intent.
func markKey(i pawl.Intent) string {
	return pawl.FingerprintOf([]byte(i.Scope), []byte(i.Key)).String()[:32]
}

// hasMark reports whether a delivery may have a mark in a filter. One with a semantic key may be
// remembered under that key only.
func hasMark(it item) bool { return it.SemanticKey == "" && !ownKey(it.intent.Key) }

// printOf returns the fingerprint that the source has set, or else that of the payload.
func printOf(d pawl.Delivery) pawl.Fingerprint {
	if d.Fingerprint != (pawl.Fingerprint{}) {
		return d.Fingerprint
	}
	return pawl.FingerprintOf(d.Payload)
}

// reservedPrefix begins Pawl's own inbox keys; a sender's key must not begin with it.
const reservedPrefix = "pawl/"

// ownKey reports whether an inbox key is one of Pawl's own, and not the key of an intent.
func ownKey(inboxKey string) bool { return strings.HasPrefix(inboxKey, reservedPrefix) }

const semanticPrefix = reservedPrefix + "semantic/"

// workingPrefix begins the inbox keys of semantic keys that a [Handle] is working on.
const workingPrefix = reservedPrefix + "working/"

// workingOf is the intent under which a job reserves a semantic key while it works.
func (c *Consumer) workingOf(d pawl.Delivery) pawl.Intent { return c.nameOf(workingPrefix, d) }

// semanticOf is the intent under which the inbox remembers a semantic key. Payloads under it may
// differ, so they are not part of its fingerprint.
func (c *Consumer) semanticOf(d pawl.Delivery) pawl.Intent { return c.nameOf(semanticPrefix, d) }

func (c *Consumer) nameOf(prefix string, d pawl.Delivery) pawl.Intent {
	return pawl.Intent{Scope: c.cfg.Name, Key: semanticName(prefix, d.SemanticKey), Fingerprint: pawl.FingerprintOf()}
}

func semanticName(prefix, semanticKey string) string {
	if key := prefix + semanticKey; len(key) <= pawl.MaxKey {
		return key
	}
	return prefix + pawl.FingerprintOf([]byte(semanticKey)).String()
}

// sequenceOf returns a delivery's number at its gate, or nil if it has none.
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
