package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// The example of the guide runs as a process: each delivery three times, one payment under two ids,
// one forged delivery. A second run on the same database changes nothing.
func TestWebhookIn(t *testing.T) {
	t.Parallel()
	binary := build(t)
	database := pawltest.URL(t)
	want := regexp.MustCompile(`(?s)^(/github +200 OK\n){3}(/stripe +200 OK\n){6}/stripe +401 Unauthorized\npushes: 1, bookings: 1, cents: 1999\n$`)
	for range 2 {
		if out := try(t, binary, "DATABASE_URL="+database); !want.MatchString(out) {
			t.Errorf("%s", out)
		}
	}
}

// Without a database the server starts its own, so one command is enough.
func TestWebhookIn_OneCommand(t *testing.T) {
	t.Parallel()
	if out := try(t, build(t), "DATABASE_URL="); !regexp.MustCompile(`pushes: 1, bookings: 1, cents: 1999\n$`).MatchString(out) {
		t.Errorf("%s", out)
	}
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "webhook-in")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func try(t *testing.T, binary string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-try")
	cmd.Env = append(append(os.Environ(), "LISTEN=127.0.0.1:0"), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
