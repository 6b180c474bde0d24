package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestDevKafka_Refusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "kafka")
	wantFailure(t, pawl(t, "", "dev", "kafka"), 2, "--dir")
	wantFailure(t, pawl(t, "", "dev", "kafka", "--dir", dir, "--topic", "orders:many"), 2, `"orders:many" of --topic needs a number of partitions`, "orders:6")
	cmd := command(t, "", "dev", "kafka", "--dir", dir)
	cmd.Env = append(cmd.Env, "JAVA_HOME="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run()
	wantFailure(t, result{cmd.ProcessState.ExitCode(), "", stderr.String()}, 1, "install a Java runtime", "JAVA_HOME")
}
