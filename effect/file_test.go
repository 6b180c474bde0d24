package effect_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/effect"
)

// The file of an intent is written once, whole or not at all.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := effect.File(dir, "invoice-17.pdf")
	if f.Path() != dir+"/invoice-17.pdf" {
		t.Error(f.Path())
	}
	half := errors.New("the disk is full")
	if written, err := f.Write(func(w io.Writer) error { _, _ = io.WriteString(w, "ha"); return half }); written || !errors.Is(err, half) {
		t.Errorf("%v, %v", written, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	for n, content := range []string{"first", "second"} {
		written, err := f.Write(func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
		if written != (n == 0) || err != nil {
			t.Errorf("%s: %v, %v", content, written, err)
		}
	}
	if text, err := os.ReadFile(f.Path()); err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	for _, odd := range []string{"../../etc/passwd", ".hidden", "", "a/b", "A", "a.", strings.Repeat("x", 101), strings.Repeat("a", 64)} {
		if name := strings.TrimPrefix(effect.File(dir, odd).Path(), dir+"/"); len(name) != 64 || strings.ContainsAny(name, "./") {
			t.Errorf("%q is named %s", odd, name)
		}
	}
	if _, err := effect.File(dir+"/none", "x").Write(func(io.Writer) error { return nil }); err == nil {
		t.Error("a directory was made")
	}
}

// No two intents have one file, neither where names differ by capitals only nor where one key is the hash of another.
func TestFile_TwoKeysNeverShareAName(t *testing.T) {
	t.Parallel()
	hashed := func(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }
	byName := map[string]string{}
	for _, key := range []string{"a", "A", "a.", ".a", "a/b", "a_b", hashed("a/b"), hashed(hashed("a/b")), strings.ToUpper(hashed("a/b")), hashed("A"), "", "-"} {
		name := strings.ToLower(strings.TrimRight(effect.File("", key).Path(), "."))
		if other, taken := byName[name]; taken {
			t.Errorf("%q and %q are both named %s", key, other, name)
		}
		byName[name] = key
	}
}

// Every preset says where it was read and when, and either how long a key is remembered or what to use instead; the derived key
// fits.
func TestProviders(t *testing.T) {
	t.Parallel()
	names := []string{"stripe", "paypal", "square", "adyen", "resend", "brevo", "twilio", "postmark", "ses"}
	if n := len(effect.Providers()); n != len(names) {
		t.Errorf("%d providers, want %d", n, len(names))
	}
	for _, name := range names {
		p, ok := effect.ProviderNamed(name)
		if !ok || !strings.HasPrefix(p.Page, "https://") || len(p.Read) != len("2006-01-02") || p.Note == "" || p.Header == "" {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
		if p.MaxKey != 0 && p.MaxKey < 36 {
			t.Errorf("%s takes no derived key", name)
		}
		policy, keyed := p.Policy()
		if keyed != (p.Memory > 0) || keyed != (policy.String() == "keyed") || !keyed && !strings.Contains(p.Note, "use Checked") {
			t.Errorf("%s: %v, %v, %s", name, policy, keyed, p.Note)
		}
	}
	if _, ok := effect.ProviderNamed("nobody"); ok {
		t.Error("nobody is known")
	}
}
