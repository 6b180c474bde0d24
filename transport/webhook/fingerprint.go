package webhook

import (
	"encoding/json"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/jsonptr"
)

// A FingerprintFrom says what of a body must be the same whenever its key comes.
type FingerprintFrom func(body []byte) pawl.Fingerprint

// IgnoreFields leaves members of a JSON body out, at RFC 6901 pointers: what a sender changes when it sends again. The rest
// counts by its canonical form ([pawl.FingerprintJSON]). A body that has no such form counts octet by octet. Elements of
// arrays stay. It panics if a pointer is none.
func IgnoreFields(pointers ...string) FingerprintFrom {
	return ofJSON(pointers, func(document any) any {
		for _, p := range pointers {
			jsonptr.Remove(document, p)
		}
		return document
	})
}

// OnlyFields counts nothing but these members of a JSON body, present or absent. A body that is not JSON counts octet by
// octet. It panics if a pointer is none.
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

// IgnoreBody lets the key alone decide: the same id with another body is a duplicate. For senders that build the body anew for
// each attempt.
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
	// The whole first: what encoding/json would silently repair (a member twice, half a surrogate) has no canonical form.
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
