package pawl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
)

// Names are bounded in octets, without characters that a log or a header could misread.
func TestIntent_Limits(t *testing.T) {
	t.Parallel()
	print := pawl.FingerprintOf([]byte("body"))
	for name, c := range map[string]struct {
		intent pawl.Intent
		want   error
	}{
		"smallest":          {pawl.Intent{Scope: "s", Key: "k", Fingerprint: print}, nil},
		"largest":           {pawl.Intent{Scope: strings.Repeat("s", 255), Key: strings.Repeat("k", 255), Fingerprint: print}, nil},
		"largest in octets": {pawl.Intent{Scope: "s", Key: strings.Repeat("ü", 127), Fingerprint: print}, nil},
		"no scope":          {pawl.Intent{Key: "k", Fingerprint: print}, pawl.ErrScopeInvalid},
		"long scope":        {pawl.Intent{Scope: strings.Repeat("s", 256), Key: "k", Fingerprint: print}, pawl.ErrScopeInvalid},
		"scope not UTF-8":   {pawl.Intent{Scope: "\xff", Key: "k", Fingerprint: print}, pawl.ErrScopeInvalid},
		"no key":            {pawl.Intent{Scope: "s", Fingerprint: print}, pawl.ErrKeyInvalid},
		"long key":          {pawl.Intent{Scope: "s", Key: strings.Repeat("k", 256), Fingerprint: print}, pawl.ErrKeyInvalid},
		"long in octets":    {pawl.Intent{Scope: "s", Key: strings.Repeat("ü", 128), Fingerprint: print}, pawl.ErrKeyInvalid},
		"NUL":               {pawl.Intent{Scope: "s", Key: "a\x00b", Fingerprint: print}, pawl.ErrKeyInvalid},
		"line feed":         {pawl.Intent{Scope: "s", Key: "a\nb", Fingerprint: print}, pawl.ErrKeyInvalid},
		"delete":            {pawl.Intent{Scope: "s", Key: "a\x7f", Fingerprint: print}, pawl.ErrKeyInvalid},
		"key not UTF-8":     {pawl.Intent{Scope: "s", Key: "a\xc3", Fingerprint: print}, pawl.ErrKeyInvalid},
		"no fingerprint":    {pawl.Intent{Scope: "s", Key: "k"}, pawl.ErrFingerprintInvalid},
	} {
		err := c.intent.Validate()
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Parts cannot be shifted against each other, because each is preceded by its length (trap T35).
func TestT35_PartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	b := func(s string) []byte { return []byte(s) }
	seen := map[pawl.Fingerprint]string{}
	for _, parts := range [][][]byte{
		{b("ab"), b("c")}, {b("a"), b("bc")}, {b("abc")}, {b("abc"), nil}, {nil, b("abc")}, {b("a"), b("b"), b("c")}, {}, {nil},
	} {
		f := pawl.FingerprintOf(parts...)
		if other, taken := seen[f]; taken {
			t.Errorf("%q and %s have the same fingerprint", parts, other)
		}
		seen[f] = string(f.String())
	}
	if a, b := pawl.FingerprintOf(b("a"), b("b")), pawl.FingerprintOf(b("a"), b("b")); a != b {
		t.Error("the same parts have two fingerprints")
	}
}

// Serialisation does not change the fingerprint. Different meaning does (trap T34).
func TestT34_SerialisationDoesNotCount(t *testing.T) {
	t.Parallel()
	of := func(doc string) pawl.Fingerprint {
		f, err := pawl.FingerprintJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		return f
	}
	first := of(`{"order": 7, "lines": [{"sku": "é", "n": 1.0}], "note": null}`)
	for _, same := range []string{
		`{"lines":[{"n":1,"sku":"\u00e9"}],"note":null,"order":7}`,
		" {\n \"note\" : null , \"order\":7e0,\"lines\":[ {\"sku\":\"é\",\"n\":10e-1} ] }\n",
	} {
		if of(same) != first {
			t.Errorf("%s counts as another payload", same)
		}
	}
	for _, other := range []string{
		`{"order": 8, "lines": [{"sku": "é", "n": 1}], "note": null}`,
		`{"order": 7, "lines": [{"sku": "é", "n": 1}]}`,
		`{"order": "7", "lines": [{"sku": "é", "n": 1}], "note": null}`,
	} {
		if of(other) == first {
			t.Errorf("%s counts as the same payload", other)
		}
	}
	if of(`[1,2]`) == of(`[2,1]`) {
		t.Error("the order of a list does not count")
	}
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `{"n":9007199254740993}`, "\"\xff\"", `{} {}`} {
		if _, err := pawl.FingerprintJSON([]byte(bad)); !errors.Is(err, pawl.ErrFingerprintInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Only a missing fingerprint is zero.
func TestFingerprint_IsZero(t *testing.T) {
	t.Parallel()
	if f := pawl.FingerprintOf([]byte("body")); f.IsZero() || !(pawl.Fingerprint{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

// Code outside of Pawl cannot make a receipt that a source accepts.
func TestReceipt_ZeroIsInvalid(t *testing.T) {
	t.Parallel()
	if (pawl.Receipt{}).Valid() {
		t.Error("the zero receipt is valid")
	}
}
