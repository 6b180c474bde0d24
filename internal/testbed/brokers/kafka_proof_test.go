//go:build proof

package brokers

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A broker serves, is killed, restarts on its port with its topics, is frozen and woken, and leaves
// nothing behind. transport/pawlkafka, which has a client, tests that it keeps its records.
func TestKafka_LivesAndDies(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s, err := Kafka(t.Context(), Options{Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("the first start took", time.Since(begun))
	wantLoopback(t, s)
	for range 2 { // the second time it exists
		if err := MakeKafkaTopic(t.Context(), s.Addr(), "kept", 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeKafkaTopic(t.Context(), s.Addr(), "no such name!", 1); err == nil {
		t.Error("a topic whose name is not allowed is made")
	}
	addr, pid := s.Addr(), s.cmd.Process.Pid
	s.Kill()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("it lives after Kill")
	}
	begun = time.Now()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("a start after a kill took", time.Since(begun))
	if s.Addr() != addr {
		t.Errorf("it came back at %s, and was at %s", s.Addr(), addr)
	}
	await(t, "the topic is there", func() bool {
		code, _, err := createKafkaTopic(t.Context(), s.Addr(), "kept", 3)
		return err == nil && code == kafkaTopicExists
	})
	s.Freeze()
	if kafkaAnswers(t.Context(), s) == nil {
		t.Error("it answers while it is frozen")
	}
	s.Wake()
	await(t, "it answers after Wake", func() bool {
		return kafkaAnswers(t.Context(), s) == nil
	})
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// The error of a broker that cannot start contains its log.
func TestKafka_SaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	s, err := Kafka(t.Context(), Options{Settings: map[string]string{"num.io.threads": "none"}})
	if err == nil {
		t.Fatal("it started", s.Stop())
	}
	if text := err.Error(); !strings.Contains(text, "num.io.threads") {
		t.Errorf("it says %q", text)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so within a minute: %s", what)
		}
	}
}
