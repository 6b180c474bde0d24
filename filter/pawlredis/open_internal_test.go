package pawlredis

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl"
)

// Each call is bounded by the Timeout, and is sent once.
func TestOpen_BoundsEachCall(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*redis.UniversalOptions{
		"one":      {Addrs: []string{"127.0.0.1:1"}},
		"hasty":    {Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Hour, WriteTimeout: -1, PoolTimeout: time.Hour, MaxRetries: 7},
		"sentinel": {Addrs: []string{"127.0.0.1:1"}, MasterName: "main"},
		"cluster":  {Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}},
	} {
		f, err := Open(options, Config{Timeout: 30 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		type bounds struct {
			read, write, pool time.Duration
			deadline          bool
			retries           int
		}
		var got bounds
		switch c := f.client.(type) {
		case *redis.Client:
			o := c.Options()
			got = bounds{o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.ContextTimeoutEnabled, o.MaxRetries}
		case *redis.ClusterClient:
			o := c.Options()
			got = bounds{o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.ContextTimeoutEnabled, 0}
		}
		if limit := 30 * time.Millisecond; got != (bounds{limit, limit, limit, true, 0}) {
			t.Errorf("%s: %+v", name, got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Open refuses numbers beyond their bounds, and names the field.
func TestOpen_RefusesNumbers(t *testing.T) {
	t.Parallel()
	options := &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}
	for _, c := range []struct {
		cfg Config
		ok  bool
	}{
		{Config{}, true},
		{Config{TTL: time.Second, Timeout: time.Millisecond, Pause: 10 * time.Millisecond}, true},
		{Config{TTL: 366 * 24 * time.Hour, Timeout: time.Second, Pause: time.Minute}, true},
		{Config{TTL: time.Second - 1}, false},
		{Config{TTL: 366*24*time.Hour + 1}, false},
		{Config{Timeout: time.Millisecond - 1}, false},
		{Config{Timeout: time.Second + 1}, false},
		{Config{Pause: 10*time.Millisecond - 1}, false},
		{Config{Pause: time.Minute + 1}, false},
		{Config{TTL: -1}, false},
	} {
		f, err := Open(options, c.cfg)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		if f != nil {
			_ = f.Close()
		}
	}
	for _, none := range []*redis.UniversalOptions{nil, {}} {
		if _, err := Open(none, Config{}); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%v: %v", none, err)
		}
	}
}
