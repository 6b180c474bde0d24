package pawlredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl"
)

// Config configures a [Filter]. The zero value is fit for production.
type Config struct {
	// Prefix begins the name of each key in Redis. Default "pawl:". Databases that share a Redis
	// should have different ones, because they would overwrite each other's marks.
	Prefix string
	// TTL is how long Redis keeps a mark. Longer finds duplicates that come later; each mark takes
	// about 150 octets. It needs not be shorter than the consumer's Retention: the mark of a purged
	// row is not believed. Default 24 h, allowed 1 s to 366 days.
	TTL time.Duration
	// Timeout bounds each call, also one that has to connect first. Longer delays deliveries more
	// when Redis hangs; shorter gives it up for a short stall. Default 20 ms, allowed 1 ms to 1 s.
	Timeout time.Duration
	// Pause is how long Redis is left alone after a failure. Then one call tries it again. Default
	// 1 s, allowed 10 ms to 1 min.
	Pause time.Duration
}

func (c *Config) complete() error {
	c.Prefix = cmp.Or(c.Prefix, "pawl:")
	c.TTL = cmp.Or(c.TTL, 24*time.Hour)
	c.Timeout = cmp.Or(c.Timeout, 20*time.Millisecond)
	c.Pause = cmp.Or(c.Pause, time.Second)
	switch {
	case c.TTL < time.Second || c.TTL > 366*24*time.Hour:
		return fmt.Errorf("the TTL must lie between 1 s and 366 days, it is %v", c.TTL)
	case c.Timeout < time.Millisecond || c.Timeout > time.Second:
		return fmt.Errorf("the Timeout must lie between 1 ms and 1 s, it is %v", c.Timeout)
	case c.Pause < 10*time.Millisecond || c.Pause > time.Minute:
		return fmt.Errorf("the Pause must lie between 10 ms and 1 min, it is %v", c.Pause)
	}
	return nil
}

// A Filter keeps marks in Redis. It is a consumer.Filter. Consumers may share it.
type Filter struct {
	cfg    Config
	client redis.UniversalClient
	// resume is when Redis is tried again, in nanoseconds since 1970; 0 while it answers.
	resume atomic.Int64
}

// Open returns a filter. The options are those of go-redis: one address, a cluster, or Sentinel
// with MasterName. Open sets the timeouts and the retries, and does not connect.
//
// Errors: [pawl.ErrArgumentInvalid].
func Open(options *redis.UniversalOptions, cfg Config) (*Filter, error) {
	err := cfg.complete()
	if options == nil || len(options.Addrs) == 0 {
		err = errors.New("the Addrs of Redis are missing")
	}
	if err != nil {
		return nil, &pawl.Error{Op: "redis.open", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	o := *options
	o.ContextTimeoutEnabled = true // go-redis ignores the deadline of a call otherwise
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.Timeout, cfg.Timeout, cfg.Timeout
	o.MaxRetries = -1
	return &Filter{cfg: cfg, client: redis.NewUniversalClient(&o)}, nil
}

// Close closes the connections. Call it after the consumers have stopped.
func (f *Filter) Close() error { return f.client.Close() }

// longestMark is one octet more than a mark has, so a longer value differs from each mark.
const longestMark = 41

// Load returns the marks of keys, or none while Redis is left alone. It returns an error only for
// the call that finds Redis failing.
func (f *Filter) Load(ctx context.Context, keys []string) ([][]byte, error) {
	marks := make([][]byte, len(keys))
	err := f.call(ctx, func(ctx context.Context, p redis.Pipeliner) {
		for _, key := range keys { // not by GET, because a value that is no mark may be large
			p.GetRange(ctx, f.cfg.Prefix+key, 0, longestMark-1)
		}
	}, func(n int, c redis.Cmder) {
		if text := c.(*redis.StringCmd).Val(); text != "" {
			marks[n] = []byte(text)
		}
	})
	if err != nil {
		return nil, err
	}
	return marks, nil
}

// Store stores marks, or nothing while Redis is left alone.
func (f *Filter) Store(ctx context.Context, keys []string, marks [][]byte) error {
	return f.call(ctx, func(ctx context.Context, p redis.Pipeliner) {
		for n, key := range keys {
			p.Set(ctx, f.cfg.Prefix+key, marks[n], f.cfg.TTL)
		}
	}, func(int, redis.Cmder) {})
}

// call sends commands in one message and passes on the answers, unless Redis is left alone. A
// failure of one command is one of all, since the filter may then be set up wrong.
func (f *Filter) call(ctx context.Context, queue func(context.Context, redis.Pipeliner), answer func(int, redis.Cmder)) error {
	resume := f.resume.Load()
	if resume != 0 {
		// one caller tries; the others go on without Redis
		now := time.Now()
		if now.UnixNano() < resume || !f.resume.CompareAndSwap(resume, now.Add(f.cfg.Pause).UnixNano()) {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	p := f.client.Pipeline()
	queue(ctx, p)
	all, err := p.Exec(ctx)
	if err != nil {
		again := time.Now().Add(f.cfg.Pause)
		if f.resume.CompareAndSwap(0, again.UnixNano()) || resume != 0 {
			return fmt.Errorf("redis: %w; the filter is off until it answers", err)
		}
		return nil // another call has reported it
	}
	f.resume.Store(0)
	for n, c := range all {
		answer(n, c)
	}
	return nil
}
