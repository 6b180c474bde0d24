package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
)

const (
	commandCallers = 16
	known          = 640 // commands that have succeeded before the measurement
)

// A caller runs one command. It writes one row and the response, or returns the stored response.
type caller func(ctx context.Context, b *bed, key, payload string) ([]byte, error)

var (
	errReused = errors.New("the key came with another payload")
	errBusy   = errors.New("in progress")
)

// made is the response of every command.
var made = bytes.Repeat([]byte("x"), 200)

// commands measures calls by 16 goroutines. prepare runs first. expect is the error that
// each call must return, or nil.
func commands(d caller, prepare func(context.Context, *bed) error, key func() string, payload string, expect error) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		s.enqueue = s.command
		if err := errors.Join(warm(ctx, b, d), prepare(ctx, b)); err != nil {
			return Round{}, err
		}
		return enqueueLoop(commandCallers, 1, func(ctx context.Context, b *bed) error {
			answer, err := d(ctx, b, key(), payload)
			if !errors.Is(err, expect) || err == nil && !bytes.Equal(answer, made) {
				return fmt.Errorf("answer of %d octets, %w; want %w", len(answer), err, expect)
			}
			return nil
		})(ctx, b, s)
	}
}

func freshKey() func() string {
	var n atomic.Int64
	return func() string { return strconv.FormatInt(known+n.Add(1), 10) }
}

func knownKey() string { return strconv.Itoa(rand.IntN(known)) }
func heldKey() string  { return "held" }

func nothing(context.Context, *bed) error { return nil }

// warm executes the known commands through every connection. Afterwards each connection has
// prepared its statements and has chosen generic plans, which PostgreSQL considers at the sixth
// execution.
func warm(ctx context.Context, b *bed, d caller) error {
	var all sync.WaitGroup
	errs := make([]error, poolConns)
	for c := range poolConns {
		all.Go(func() {
			for n := c; n < known && errs[c] == nil; n += poolConns {
				_, errs[c] = d(ctx, b, strconv.Itoa(n), "p")
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

var quiet = (&pawl.Counters{}).Hooks()

func once(ctx context.Context, b *bed, key, payload string) ([]byte, error) {
	intent := pawl.Intent{Scope: "bench", Key: key, Fingerprint: pawl.FingerprintOf([]byte(payload))}
	r, err := command.Once(ctx, b.pool, intent, command.Options{Wait: -1, Hooks: quiet}, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, insertEffect, 1)
		return made, err
	})
	return r.Value, err
}

// hold claims the held key under a lease.
func hold(ctx context.Context, b *bed) error {
	//pawl:allow keywithouthash the benchmark has one payload
	intent := pawl.Intent{Scope: "bench", Key: heldKey(), Fingerprint: pawl.FingerprintOf([]byte("p"))}
	a, _, err := command.Begin[[]byte](ctx, b.pool, intent, command.LeaseOptions{Hooks: quiet})
	if err == nil {
		a.Close() // the lease outlasts the measurement
	}
	return err
}

// createKeys is the usual handwritten table of keys.
const createKeys = `;
create table idempotency_key (
  scope text not null, key text not null, hash bytea not null, answer bytea, created_at timestamptz not null default now(),
  primary key (scope, key)
)`

// byHand is the usual handwritten code for it. It has no fences, leases or stored failures, and
// cannot find out the outcome of a lost COMMIT.
func byHand(ctx context.Context, b *bed, key, payload string) (answer []byte, err error) {
	hash := sha256.Sum256([]byte(payload))
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "insert into idempotency_key (scope, key, hash) values ('bench', $1, $2) on conflict do nothing", key, hash[:])
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			answer, err = lookUp(ctx, tx, key, hash[:])
			return err
		}
		if _, err := tx.Exec(ctx, insertEffect, 1); err != nil {
			return err
		}
		answer = made
		_, err = tx.Exec(ctx, "update idempotency_key set answer = $2 where scope = 'bench' and key = $1", key, answer)
		return err
	})
	return answer, err
}

func lookUp(ctx context.Context, tx pgx.Tx, key string, hash []byte) (answer []byte, err error) {
	var seen []byte
	err = tx.QueryRow(ctx, "select k.hash, k.answer from idempotency_key as k where k.scope = 'bench' and k.key = $1", key).Scan(&seen, &answer)
	switch {
	case err == nil && !bytes.Equal(seen, hash):
		err = errReused
	case err == nil && answer == nil:
		err = errBusy
	}
	return answer, err
}

func holdByHand(ctx context.Context, b *bed) error {
	hash := sha256.Sum256([]byte("p"))
	_, err := b.pool.Exec(ctx, "insert into idempotency_key (scope, key, hash) values ('bench', $1, $2)", heldKey(), hash[:])
	return err
}

// createEmpty creates two functions with the arguments of command_open and command_close. They do
// nothing except write the row of the latter.
const createEmpty = `
create schema if not exists empty;
create or replace function empty.open(p_scope text, p_key text, p_hash bytea, p_idle_ms int) returns table (outcome text, fence bigint)
language plpgsql as $$ begin outcome := 'new_claim'; fence := 1; return next; end $$;
create or replace function empty.close(p_scope text, p_key text, p_hash bytea, p_fence bigint, p_result bytea) returns table (outcome text)
language plpgsql as $$
begin
  insert into pawl.command (scope, key, hash, fence, expires_at, status, result)
  values (p_scope, p_key, p_hash, p_fence, clock_timestamp() + interval '24 hours', 'succeeded', p_result);
  outcome := 'succeeded';
  return next;
end $$`

func installEmpty(ctx context.Context, pool *pgxpool.Pool) error {
	if err := installPawl(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, createEmpty)
	return err
}

// emptySystem is Pawl's schema with the functions of createEmpty.
var emptySystem = system{"empty", installEmpty, pawlSystem.open}

// inFunctions sends the same messages as Once, to the functions of createEmpty. It neither locks
// nor looks up a key. It shows the rate if the work in Once's functions cost nothing.
func inFunctions(ctx context.Context, b *bed, key, payload string) ([]byte, error) {
	hash := sha256.Sum256([]byte(payload))
	err := b.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var outcome string
		var fence int64
		first := &pgx.Batch{}
		first.Queue("begin")
		first.Queue("select o.outcome, o.fence from empty.open($1, $2, $3, $4) as o", "bench", key, hash[:], 60_000).
			QueryRow(func(row pgx.Row) error { return row.Scan(&outcome, &fence) })
		if err := c.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, insertEffect, 1); err != nil {
			return err
		}
		last := &pgx.Batch{}
		last.Queue("select c.outcome from empty.close($1, $2, $3, $4, $5) as c", "bench", key, hash[:], fence, made).
			QueryRow(func(row pgx.Row) error { return row.Scan(&outcome) })
		last.Queue("commit")
		return c.SendBatch(ctx, last).Close()
	})
	return made, err
}

// bare writes the row without a key.
func bare(ctx context.Context, b *bed, _, _ string) ([]byte, error) {
	return made, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertEffect, 1)
		return err
	})
}

// commandPlans returns the rows of commands. Their floor is the handwritten table.
func commandPlans() []plan {
	const table = "a table of keys, insert … on conflict do nothing"
	row := func(id, title string, entries ...entry) plan {
		var bars []Bar
		if len(entries) > 1 && entries[1].Floor {
			bars = []Bar{{Who: "Pawl", Of: "by hand", Factor: 0.8}}
		}
		return plan{Row: Row{ID: id, Title: title + ", 16 callers", Unit: commandsPerSec, Bars: bars}, entries: entries}
	}
	hand := Line{Who: "by hand", How: table, Floor: true}
	return []plan{
		row("command-fresh", "Commands that write one row, each key new",
			entry{who("Pawl", "Once"), pawlSystem, commands(once, nothing, freshKey(), "p", nil)},
			entry{hand, loopSystem, commands(byHand, nothing, freshKey(), "p", nil)},
			entry{who("empty functions", "as many messages and the same row, by two functions that check nothing: the floor of Once"), emptySystem,
				commands(inFunctions, nothing, freshKey(), "p", nil)},
			entry{who("no key", "the row alone, in a transaction"), loopSystem, commands(bare, nothing, freshKey(), "p", nil)}),
		row("command-replay", "Commands that were answered before",
			entry{who("Pawl", "Once"), pawlSystem, commands(once, nothing, knownKey, "p", nil)},
			entry{hand, loopSystem, commands(byHand, nothing, knownKey, "p", nil)}),
		row("command-conflict", "Commands that another caller is at, not waited for",
			entry{who("Pawl", "Once, against a lease"), pawlSystem, commands(once, hold, heldKey, "p", pawl.ErrInProgress)},
			entry{hand, loopSystem, commands(byHand, holdByHand, heldKey, "p", errBusy)}),
		row("command-mismatch", "Commands whose key came with another payload",
			entry{who("Pawl", "Once"), pawlSystem, commands(once, nothing, knownKey, "q", pawl.ErrKeyReused)},
			entry{hand, loopSystem, commands(byHand, nothing, knownKey, "q", errReused)}),
	}
}
