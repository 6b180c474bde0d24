//go:build proof

package brokers

import (
	"strings"
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
	for range 2 { // the second time it exists
		if err := MakeKafkaTopic(t.Context(), s.Addr(), "kept", 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeKafkaTopic(t.Context(), s.Addr(), "no such name!", 1); err == nil {
		t.Error("a topic whose name is not allowed is made")
	}
	livesAndDies(t, s, kafkaAnswers, func() {
		await(t, "the topic is there", func() bool {
			code, _, err := createKafkaTopic(t.Context(), s.Addr(), "kept", 3)
			return err == nil && code == kafkaTopicExists
		})
	})
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
