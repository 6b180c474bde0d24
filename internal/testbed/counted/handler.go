package counted

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/pace"
)

// tables are the handlers' tables. They have no unique key, so a second effect shows. id is the
// order of effects.
const tables = `
create table orders (id bigint generated always as identity, key text not null, lane text not null, number int not null, cents bigint not null,
  pid int not null, at timestamptz not null default clock_timestamp());
create table ledger (key text not null, cents bigint not null)`

// A handler applies orders in a worker process.
type handler struct {
	assignment
	pool *pgxpool.Pool
}

// execer is the transaction, or the pool if a mutant writes outside of it.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (h handler) one(ctx context.Context, tx pgx.Tx, m consumer.Message[order]) error {
	o := m.Value
	if err := h.write(ctx, tx, o); err != nil {
		return err
	}
	random := h.random(o.Key)
	fails := random.Float64() < h.Failures
	if h.Most > 0 {
		pace.Sleep(ctx, h.Least+time.Duration(random.Float64()*float64(h.Most-h.Least)))
	}
	switch {
	case o.Poison == killsProcess:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // wait for the signal
	case o.Poison == refused:
		return pawl.Final(errors.New("this order cannot be applied"))
	// A stored delivery has no handle, and its Receives is the attempt number.
	case fails && (m.Handle != nil || m.Receives == 1):
		return errors.New("not at the first try")
	}
	return nil
}

func (h handler) write(ctx context.Context, tx pgx.Tx, o order) error {
	var to execer = tx
	if h.Mutant == EffectOutside {
		to = h.pool
	}
	_, err := to.Exec(ctx, `with o as (insert into orders (key, lane, number, cents, pid) values ($1, $2, $3, $4, $5))
		insert into ledger (key, cents) values ($1, $4)`, o.Key, o.Lane, o.Number, o.Cents, os.Getpid())
	return err
}

// random returns the same generator for an order in every process.
func (h handler) random(key string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	return rand.New(rand.NewPCG(h.Seed, hash.Sum64()))
}
