package brokers

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// The port of an Erlang node is open to every local user, and a client with its cookie can run
// programs as the node's user. So the cookie must be secret and readable only by its owner. That
// also holds in a directory of an older build, whose cookie was not random.
func TestRabbitMQ_TheCookieIsASecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "home", ".erlang.cookie")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	// An older build used its start time.
	old := "PAWL" + strconv.FormatInt(1_700_000_000_000_000_000, 36)
	if err := os.WriteFile(file, []byte(old), 0o400); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{old: true}
	for range 3 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{dir: filepath.Dir(filepath.Dir(file)), port: port}
		if err := prepareRabbit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		cookie, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// rand.Text writes 128 random bits in base32.
		if seen[string(cookie)] || !regexp.MustCompile(`^[A-Z2-7]{26,}$`).Match(cookie) {
			t.Errorf("the cookie is %q, those before were %v", cookie, seen)
		}
		seen[string(cookie)] = true
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("its mode is %v, %v", info.Mode(), err)
		}
	}
}
