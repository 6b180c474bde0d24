// Package pawl has the names that the test data uses.
package pawl

type Fingerprint [32]byte

func FingerprintOf(parts ...[]byte) Fingerprint { return Fingerprint{} }

type Intent struct {
	Scope, Key  string
	Fingerprint Fingerprint
}

type Delivery struct {
	Key     string
	Payload []byte
}
