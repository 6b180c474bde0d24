package brokers

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// Who knows the cookie of an Erlang node runs programs as its user, and its port is open to each
// user of the machine: the cookie is a secret, also in a directory of an older build, and only its
// owner reads it.
func TestRabbitMQ_TheCookieIsASecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "home", ".erlang.cookie")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	old := "PAWL" + strconv.FormatInt(1_700_000_000_000_000_000, 36) // the time of its start
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
		// 128 random bits, as rand.Text writes them.
		if seen[string(cookie)] || !regexp.MustCompile(`^[A-Z2-7]{26,}$`).Match(cookie) {
			t.Errorf("the cookie is %q, those before were %v", cookie, seen)
		}
		seen[string(cookie)] = true
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("its mode is %v, %v", info.Mode(), err)
		}
	}
}
