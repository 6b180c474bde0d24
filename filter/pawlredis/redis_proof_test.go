//go:build proof

package pawlredis_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/filter/pawlredis"
	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/internal/testbed/patience"
)

// startRedis runs a Redis for one test, and returns it with a client of the test's own.
func startRedis(t testing.TB) (*brokers.Server, *redis.Client) {
	t.Helper()
	s, err := brokers.Redis(t.Context(), brokers.Options{Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

func open(t testing.TB, s *brokers.Server, cfg pawlredis.Config) *pawlredis.Filter {
	t.Helper()
	f, err := pawlredis.Open(&redis.UniversalOptions{Addrs: []string{s.Addr()}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// store stores one mark, however busy the machine is.
func store(t testing.TB, f *pawlredis.Filter, c *redis.Client, key string, mark []byte) {
	t.Helper()
	patience.Until(t, "the mark is stored", func() bool {
		err := f.Store(t.Context(), []string{key}, [][]byte{mark})
		return err == nil && c.Exists(t.Context(), "pawl:"+key).Val() == 1
	})
}

// Marks come back by key, and expire.
func TestRedis_KeepsMarks(t *testing.T) {
	t.Parallel()
	s, c := startRedis(t)
	f := open(t, s, pawlredis.Config{TTL: time.Hour, Timeout: time.Second})
	store(t, f, c, "a", []byte("mark \x00 of a"))
	store(t, f, c, "b", []byte("mark of b"))
	patience.Until(t, "the marks are loaded", func() bool {
		marks, err := f.Load(t.Context(), []string{"b", "absent", "a"})
		return err == nil && string(marks[0]) == "mark of b" && marks[1] == nil && string(marks[2]) == "mark \x00 of a"
	})
	if left := c.PTTL(t.Context(), "pawl:a").Val(); left <= 0 || left > time.Hour {
		t.Errorf("it is kept for %v", left)
	}
}

// Of a value that is no mark, only as much is read as distinguishes it from one.
func TestRedis_LargeValuesAreCut(t *testing.T) {
	t.Parallel()
	s, c := startRedis(t)
	f := open(t, s, pawlredis.Config{Timeout: time.Second})
	if err := c.Set(t.Context(), "pawl:a", strings.Repeat("x", 10<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "it is loaded", func() bool {
		marks, err := f.Load(t.Context(), []string{"a"})
		return err == nil && len(marks[0]) == 41
	})
}

// While Redis hangs, calls return. The first reports it, and the others leave Redis alone.
func TestRedis_HangsAndIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, _ := startRedis(t)
	f := open(t, s, pawlredis.Config{Pause: time.Minute})
	s.Freeze()
	defer s.Wake()
	var failures atomic.Int32
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 100 {
				if marks, err := f.Load(t.Context(), []string{"a"}); err != nil {
					failures.Add(1)
				} else if marks[0] != nil {
					t.Error("a mark from nowhere")
				}
			}
		})
	}
	callers.Wait() // also if a Pause ends meanwhile
	if n := failures.Load(); n == 0 || n > 20 {
		t.Errorf("%d of 2000 calls failed", n)
	}
}

// A Redis that died and came back is used again.
func TestRedis_DiesAndComesBack(t *testing.T) {
	t.Parallel()
	s, c := startRedis(t)
	f := open(t, s, pawlredis.Config{Pause: 10 * time.Millisecond})
	store(t, f, c, "a", []byte("mark"))
	s.Kill()
	patience.Until(t, "a call reports the death", func() bool {
		_, err := f.Load(t.Context(), []string{"a"})
		return err != nil
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the mark is there again", func() bool {
		marks, err := f.Load(t.Context(), []string{"a"})
		return err == nil && string(marks[0]) == "mark"
	})
}
