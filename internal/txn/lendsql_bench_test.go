package txn_test

import (
	"context"
	"database/sql"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/txn"
	"github.com/pawl-go/pawl/pawltest"
)

// BenchmarkLendSQL measures what database/sql adds to a transaction: its driver around the
// connection, and a *sql.Tx for the handler. It measures no statements. Decision 0044 has the
// figures.
func BenchmarkLendSQL(b *testing.B) {
	pool := pawltest.DB(b, rows)
	for _, with := range []bool{false, true} {
		b.Run(map[bool]string{false: "take a connection", true: "take a connection with the driver"}[with], func(b *testing.B) {
			defer processorTime(b)()
			for b.Loop() {
				if err := (txn.Opener{Pool: pool, SQL: with}).Take(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("lend", func(b *testing.B) {
		tx, err := txn.Opener{Pool: pool, SQL: true}.Open(b.Context(), "x.begin", "", time.Minute, queued("insert into mark values (1)"))
		if err != nil {
			b.Fatal(err)
		}
		defer txn.Rollback(b.Context(), tx)
		err = tx.Guard(b.Context(), time.Minute, func(ctx context.Context, tx pgx.Tx) error {
			defer processorTime(b)()
			for b.Loop() {
				if err := txn.LendSQL(ctx, tx, func(*sql.Tx) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}

// processorTime reports allocations and the processor time of an operation, which depends less on
// the machine's load than elapsed time.
func processorTime(b *testing.B) (end func()) {
	b.ReportAllocs()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}
