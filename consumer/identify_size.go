package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/job"
)

const (
	// maxKept is the most octets the database accepts of a payload. The same bound applies to all
	// texts of a delivery together: key, attributes, ids.
	maxKept = 4 << 20
	// longestText is how many octets are kept of each text if the texts together are too large.
	longestText = 1000
)

// tooLarge returns an error if a delivery cannot be stored whole. No form handles such a delivery,
// because after a failure it could not be retried.
func tooLarge(d pawl.Delivery) error {
	var why error
	if n := len(d.Payload); n > maxKept {
		why = fmt.Errorf("the payload has %d octets (SHA-256 %x), and at most %d can be stored: the dead letter does not have it", n, sha256.Sum256(d.Payload), maxKept)
	} else if n := octetsOfTexts(d); n > maxKept {
		why = fmt.Errorf("the attributes, keys and ids have %d octets together, and at most %d can be stored: the dead letter has no attributes", n, maxKept)
	} else {
		return nil
	}
	return &pawl.Error{Op: "consumer.claim", Code: pawl.CodeArgumentInvalid, Err: why, Hint: "let the producer send a reference instead" + found(d)}
}

// found returns a hint where to find a message that was not kept whole.
func found(d pawl.Delivery) string {
	if d.Log == "" {
		return ""
	}
	return fmt.Sprintf("; this message is in log %s at offset %d", d.Log, d.Offset)
}

func octetsOfTexts(d pawl.Delivery) int {
	n := 0
	for name, value := range d.Attributes {
		n += len(name) + len(value)
	}
	for _, s := range []string{d.Key, d.KeyFault, d.SemanticKey, d.MessageID, d.OrderingKey, d.Log, d.VerifiedBy} {
		n += len(s)
	}
	return n
}

// keepable returns the delivery without the parts that cannot be stored, and headers that say so.
func keepable(d pawl.Delivery) (pawl.Delivery, map[string]any) {
	payload, texts := len(d.Payload), octetsOfTexts(d)
	if payload <= maxKept && texts <= maxKept {
		return d, nil
	}
	omitted := map[string]any{headerPartial: true}
	if payload > maxKept {
		print := sha256.Sum256(d.Payload)
		omitted[headerPayloadOctets], omitted[headerPayloadSHA256] = payload, hex.EncodeToString(print[:])
		d.Payload = nil
	}
	if texts > maxKept {
		omitted[headerTextOctets] = texts
		d.Attributes = nil
		for _, s := range []*string{&d.Key, &d.KeyFault, &d.SemanticKey, &d.MessageID, &d.OrderingKey, &d.Log, &d.VerifiedBy} {
			*s = text.Octets(*s, longestText)
		}
	}
	return d, omitted
}

// kept returns an error for a stored delivery that was not kept whole, so it cannot be handled.
func kept(j job.Job) error {
	if partial, _ := j.Headers[headerPartial].(bool); !partial {
		return nil
	}
	why, d := "the attributes it came with were not kept", storedDelivery(j)
	if _, there := j.Headers[headerPayloadOctets]; there {
		why = "its payload was too large to be kept"
	}
	hint := "have it sent again, smaller" + found(d)
	if d := j.Headers; d[headerPayloadOctets] == nil && d[headerTextOctets] == nil {
		hint = "have it sent again, or name its attributes in Keep.Attributes"
	}
	return &pawl.Error{Op: "consumer.claim", Code: pawl.CodeArgumentInvalid, Err: errors.New(why), Hint: hint}
}
