//go:build proof

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A development broker has the requested topics and keeps its address between starts. A command
// gets that address.
func TestDevKafka_RunsACommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "kafka")
	r := mustPawl(t, "", "dev", "kafka", "--dir", dir, "--topic", "orders:6", "--topic", "refunds", "--", "sh", "-c",
		`test "$KAFKA_BOOTSTRAP_SERVERS" = "$PAWL_KAFKA_BROKERS" && echo "$KAFKA_BOOTSTRAP_SERVERS"`)
	if !strings.HasPrefix(r.stdout, "127.0.0.1:") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	for partition, there := range map[string]bool{"orders-0": true, "orders-5": true, "orders-6": false, "refunds-0": true, "refunds-1": false} {
		if _, err := os.Stat(filepath.Join(dir, "data", partition)); (err == nil) != there {
			t.Errorf("partition %s: %v", partition, err)
		}
	}
	again := mustPawl(t, "", "dev", "kafka", "--dir", dir, "--topic", "orders:6", "--", "sh", "-c", `echo "$KAFKA_BOOTSTRAP_SERVERS"`)
	if again.stdout != r.stdout {
		t.Errorf("the address was %q and is %q", r.stdout, again.stdout)
	}
}
