package pawl

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits on identity, in octets. CHECK constraints in the database hold the same bounds for every
// client. A key must fit a btree entry in any alphabet.
const (
	MaxScope = 255 // scope, consumer and queue names
	MaxKey   = 255 // idempotency keys and message ids
)

// An Intent is one logical thing that must happen once. Keys name intents, never attempts.
type Intent struct {
	// Scope separates key spaces: a consumer, a tenant and route, a queue. 1 to 255 octets.
	Scope string
	// Key is the caller's name for the intent within Scope, the same at every retry. 1 to 255
	// octets of UTF-8 without control characters.
	Key string
	// Fingerprint identifies the payload. The same key with another fingerprint is refused.
	Fingerprint Fingerprint
}

// Key joins several parts into a key, each preceded by its length, so that ("ab", "c") and ("a",
// "bc") differ: "2:ab1:c". A result longer than [MaxKey] is replaced by "sha256:" and its hash.
// docs/guides/keys.md explains which parts make a good key.
func Key(parts ...string) string {
	var key strings.Builder
	for _, p := range parts {
		key.WriteString(strconv.Itoa(len(p)))
		key.WriteByte(':')
		key.WriteString(p)
	}
	if key.Len() > MaxKey {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key.String())))
	}
	return key.String()
}

// Validate reports the first broken rule: [CodeScopeInvalid], [CodeKeyInvalid] or
// [CodeFingerprintInvalid].
func (i Intent) Validate() error {
	if why := nameFault(i.Scope, MaxScope); why != "" {
		return &Error{Op: "intent", Code: CodeScopeInvalid, Err: fmt.Errorf("scope %s", why)}
	}
	if why := nameFault(i.Key, MaxKey); why != "" {
		return &Error{Op: "intent", Code: CodeKeyInvalid, Err: fmt.Errorf("key %s", why)}
	}
	if i.Fingerprint.IsZero() {
		return &Error{Op: "intent", Code: CodeFingerprintInvalid, Err: fmt.Errorf("fingerprint is missing")}
	}
	return nil
}

// nameFault says what is wrong with a name, or returns "".
func nameFault(s string, limit int) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > limit:
		return fmt.Sprintf("has %d octets, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return fmt.Sprintf("contains the control character %U", r)
		}
	}
	return ""
}
