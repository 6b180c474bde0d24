package consumer

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// A noSource returns the SourceInfo of a test case.
type noSource struct {
	pawl.Source
	info pawl.SourceInfo
}

func (s noSource) Info() pawl.SourceInfo { return s.info }

// By default half the pool stays free for handlers that take a second connection.
func TestConfig_HalfThePoolByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ conns, fresh, retries int }{
		{4, 1, 1}, {8, 3, 1}, {10, 4, 1}, {16, 6, 2}, {20, 8, 2}, {64, 24, 8}, {100, 38, 12},
	} {
		config := Config{Name: "c", Source: noSource{}, Retention: Retention{Forever: true},
			Handler: HandleTx(func(context.Context, pgx.Tx, Message[[]byte]) error { return nil })}
		if _, _, err := config.complete(c.conns); err != nil || config.Concurrency != c.fresh || config.RetryConcurrency != c.retries {
			t.Errorf("a pool of %d: Concurrency %d, RetryConcurrency %d, %v; want %d and %d",
				c.conns, config.Concurrency, config.RetryConcurrency, err, c.fresh, c.retries)
		}
	}
	long := Config{Name: "c", Source: noSource{}, Handler: Handle(func(context.Context, *Attempt[[]byte]) error { return nil })}
	if _, _, err := long.complete(20); err != nil || long.Concurrency != 32 || long.RetryConcurrency != 2 {
		t.Errorf("a Handle: Concurrency %d, RetryConcurrency %d, %v", long.Concurrency, long.RetryConcurrency, err)
	}
}

func TestConfig_ChecksWhatTheSourceSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		info pawl.SourceInfo
		fits bool
	}{
		"nothing":                    {pawl.SourceInfo{}, true},
		"evidence":                   {pawl.SourceInfo{Evidence: true, EvidenceAttributes: []string{"id"}}, true},
		"attributes of no evidence":  {pawl.SourceInfo{EvidenceAttributes: []string{"id"}}, false},
		"a negative horizon":         {pawl.SourceInfo{RedeliveryHorizon: -1}, false},
		"a horizon without an end":   {pawl.SourceInfo{RedeliveryHorizon: 1<<63 - 1}, false},
		"receives of 10,000":         {pawl.SourceInfo{ReceiveBatch: 10_000}, true},
		"receives of 10,001":         {pawl.SourceInfo{ReceiveBatch: 10_001}, false},
		"receives of less than one":  {pawl.SourceInfo{ReceiveBatch: -1}, false},
		"acks of 10,000":             {pawl.SourceInfo{AckBatch: 10_000}, true},
		"acks of 10,001":             {pawl.SourceInfo{AckBatch: 10_001}, false},
		"acks of less than one":      {pawl.SourceInfo{AckBatch: -1}, false},
		"acks in order":              {pawl.SourceInfo{Cumulative: true}, true},
		"a horizon of fourteen days": {pawl.SourceInfo{RedeliveryHorizon: longestQueue / 2}, true},
	} {
		config := Config{Name: "c", Source: noSource{info: c.info}, Handler: HandleTx(func(context.Context, pgx.Tx, Message[[]byte]) error { return nil })}
		if _, _, err := config.complete(10); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
	endless := Config{Name: "c", Source: noSource{info: pawl.SourceInfo{RedeliveryHorizon: 1<<63 - 1}}, Retention: Retention{Forever: true},
		Handler: HandleTx(func(context.Context, pgx.Tx, Message[[]byte]) error { return nil })}
	if _, _, err := endless.complete(10); err != nil {
		t.Errorf("a horizon without an end, remembered for ever: %v", err)
	}
}
