package pawl

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/pawl-go/pawl/internal/jcs"
)

// A Fingerprint is the SHA-256 of an intent's payload. It never changes for the life of its key.
type Fingerprint [sha256.Size]byte

// FingerprintOf hashes the parts, each preceded by its length as eight big-endian octets, so that
// ("ab", "c") and ("a", "bc") differ. Raw bytes are the default because every change of them shows.
// If a sender serialises its payload again for a retry, use [FingerprintJSON].
func FingerprintOf(parts ...[]byte) Fingerprint {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write(p)
	}
	return Fingerprint(h.Sum(nil))
}

// FingerprintJSON hashes the canonical form of one JSON document (RFC 8785). Member order, white
// space and number spelling do not count, so 1.0, 1 and 10e-1 are the same. It refuses documents
// whose canonical form is ambiguous: repeated members, invalid UTF-8, integers beyond ±2^53, and
// decimals with more digits than a double keeps (some have 16, all have 15). Two payloads with such
// numbers could be equal after rounding. Send such numbers as strings.
func FingerprintJSON(doc []byte) (Fingerprint, error) {
	canonical, err := jcs.Canonical(doc)
	if err != nil {
		return Fingerprint{}, &Error{Op: "fingerprint", Code: CodeFingerprintInvalid, Err: err,
			Hint: "send a JSON document that RFC 8785 can represent, or fingerprint the raw bytes"}
	}
	return FingerprintOf(canonical), nil
}

// IsZero reports whether the fingerprint is missing.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String returns the fingerprint in lower-case hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }
