package webhook

import (
	"encoding/json"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// A FingerprintFrom computes what must be equal in all deliveries with the same key.
type FingerprintFrom func(body []byte) pawl.Fingerprint

// IgnoreFields leaves out members of a JSON body, given as RFC 6901 pointers. Use it for members
// that a sender changes on a retry. The rest is compared in canonical form
// ([pawl.FingerprintJSON]), or octet by octet if it has none. Array elements are not left out.
// IgnoreFields panics if a pointer is invalid.
func IgnoreFields(pointers ...string) FingerprintFrom {
	return ofJSON(pointers, func(document any) any {
		for _, p := range pointers {
			jsonptr.Remove(document, p)
		}
		return document
	})
}

// OnlyFields compares only these members of a JSON body, present or absent. A body that is not JSON
// is compared octet by octet. OnlyFields panics if a pointer is invalid.
func OnlyFields(pointers ...string) FingerprintFrom {
	return ofJSON(pointers, func(document any) any {
		chosen := map[string]any{}
		for _, p := range pointers {
			if value, ok := jsonptr.Find(document, p); ok {
				chosen[p] = value
			}
		}
		return chosen
	})
}

// IgnoreBody compares nothing: the same key with another body is a duplicate. Use it for senders
// that build the body anew for each attempt.
func IgnoreBody() FingerprintFrom {
	return func([]byte) pawl.Fingerprint { return pawl.FingerprintOf() }
}

func ofJSON(pointers []string, choose func(document any) any) FingerprintFrom {
	for _, p := range pointers {
		if err := jsonptr.Check(p); err != nil {
			panic("webhook: " + err.Error())
		}
	}
	return func(body []byte) pawl.Fingerprint {
		if print, err := chosen(body, choose); err == nil {
			return print
		}
		return pawl.FingerprintOf(body)
	}
}

func chosen(body []byte, choose func(document any) any) (pawl.Fingerprint, error) {
	// Checks the whole body first: encoding/json would silently repair a repeated member or half a
	// surrogate, which have no canonical form.
	if _, err := pawl.FingerprintJSON(body); err != nil {
		return pawl.Fingerprint{}, err
	}
	document, err := jsonptr.Decode(body)
	if err != nil {
		return pawl.Fingerprint{}, err
	}
	rest, err := json.Marshal(choose(document))
	if err != nil {
		return pawl.Fingerprint{}, err
	}
	return pawl.FingerprintJSON(rest)
}
