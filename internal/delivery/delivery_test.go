package delivery_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/delivery"
	"github.com/pawl-go/pawl/pawltest"
)

func intent(key, payload string) pawl.Intent {
	return pawl.Intent{Scope: "billing", Key: key, Fingerprint: pawl.FingerprintOf([]byte(payload))}
}

// An intent without an answer from the database is an error. Otherwise it would count as a
// duplicate and be acknowledged.
func TestClaimMany_NoAnswerIsAnError(t *testing.T) {
	t.Parallel()
	pending, err := delivery.PrepareMany([]pawl.Intent{intent("a", "1"), intent("b", "2")})
	if err != nil {
		t.Fatal(err)
	}
	claims, refused := pending.Claims()
	for n := range claims {
		if pawl.CodeOf(refused[n]) != pawl.CodeUnknownState {
			t.Errorf("claim %d is %+v, %v", n, claims[n], refused[n])
		}
	}
}

func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func take(t *testing.T, tx pgx.Tx, i pawl.Intent) delivery.Claim {
	t.Helper()
	c, err := delivery.Take(t.Context(), tx, i)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTake_OnceFreshThenDuplicate(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	first := begin(t, pool, pgx.ReadCommitted)
	if c := take(t, first, intent("m", "a")); !c.Fresh {
		t.Fatal("the first delivery is not fresh")
	}
	commit(t, first)
	again := take(t, begin(t, pool, pgx.ReadCommitted), intent("m", "a"))
	if again.Fresh || again.JobID != 0 {
		t.Errorf("the second delivery: %+v", again)
	}
}

// A duplicate gets the result_ref of the first claim, with each way to claim.
func TestTakeFor_TheReferenceIsAnsweredToDuplicates(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	i := intent("name", "")
	first := begin(t, pool, pgx.ReadCommitted)
	if c, err := delivery.TakeFor(t.Context(), first, i, "m"); err != nil || !c.Fresh {
		t.Fatalf("%+v, %v", c, err)
	}
	commit(t, first)
	tx := begin(t, pool, pgx.ReadCommitted)
	var answers [4]contract.InboxClaimRow
	var err error
	if answers[0], err = contract.InboxClaim(t.Context(), tx, i.Scope, i.Key, i.Fingerprint, contract.InboxLane{}); err != nil {
		t.Fatal(err)
	}
	if answers[1], err = contract.InboxClaimFor(t.Context(), tx, i.Scope, i.Key, i.Fingerprint, "another"); err != nil {
		t.Fatal(err)
	}
	b := &pgx.Batch{}
	contract.InboxClaimStep(i.Scope, i.Key, i.Fingerprint, contract.InboxLane{}, &answers[2])(b)
	contract.InboxClaimManyStep(i.Scope, []pawl.Intent{i}, func(rows []contract.InboxClaimRow) { answers[3] = rows[0] })(b)
	if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
	for n, a := range answers {
		if a.Outcome != "duplicate_ignored" || a.ResultRef == nil || *a.ResultRef != "m" {
			t.Errorf("answer %d: %+v", n, a)
		}
	}
}

// A claim that travels in one message with BEGIN gets the same answer.
func TestPrepare_AnswersAsTakeDoes(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	ask := func(i pawl.Intent) (delivery.Claim, error) {
		pending, err := delivery.Prepare(i, delivery.Lane{})
		if err != nil {
			return delivery.Claim{}, err
		}
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		pending.Queue(b)
		results := pool.SendBatch(t.Context(), b)
		err = results.Close()
		if err == nil {
			err = results.Tx().Commit(t.Context())
		} else {
			_ = results.Tx().Rollback(t.Context())
		}
		if err != nil {
			return delivery.Claim{}, err
		}
		return pending.Claim()
	}
	if c, err := ask(intent("m", "a")); err != nil || !c.Fresh {
		t.Errorf("first: %+v, %v", c, err)
	}
	if c, err := ask(intent("m", "a")); err != nil || c.Fresh || c.ReceivedAt.IsZero() {
		t.Errorf("second: %+v, %v", c, err)
	}
	if _, err := ask(intent("m", "b")); !errors.Is(err, pawl.ErrKeyReused) {
		t.Errorf("another payload: %v", err)
	}
	if _, err := ask(intent("", "a")); !errors.Is(err, pawl.ErrKeyInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// The claim is rolled back with its transaction, so a delivery whose effect rolled back is not
// remembered (trap T5).
func TestT5_RolledBackClaimIsForgotten(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	take(t, tx, intent("m", "a"))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := take(t, begin(t, pool, pgx.ReadCommitted), intent("m", "another payload is fine now")); !c.Fresh {
		t.Error("a rolled back claim left something behind")
	}
}

// Two consumers of one message both process it (trap T45).
func TestT45_ConsumersDoNotShareKeys(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	take(t, tx, intent("m", "a"))
	other := intent("m", "a")
	other.Scope = "mailing"
	if c := take(t, tx, other); !c.Fresh {
		t.Error("the second consumer was skipped")
	}
}

func TestTake_KnownKeyWithAnotherPayloadIsRefused(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	take(t, tx, intent("m", "a"))
	commit(t, tx)
	_, err := delivery.Take(t.Context(), begin(t, pool, pgx.ReadCommitted), intent("m", "b"))
	if !errors.Is(err, pawl.ErrKeyReused) {
		t.Errorf("got %v, want ErrKeyReused", err)
	}
}

// If another transaction processes the delivery, the claim returns within the lock limit of 50 ms.
// The limit does not apply to the handler's own statements.
func TestTake_InProgressIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	take(t, begin(t, pool, pgx.ReadCommitted), intent("m", "a")) // stays open

	_, err := delivery.Take(t.Context(), begin(t, pool, pgx.ReadCommitted), intent("m", "a"))
	if pawl.CodeOf(err) != "55P03" || !pawl.Retryable(err) {
		t.Errorf("got %v, want a retryable 55P03", err)
	}
	var config []string
	if err := pool.QueryRow(t.Context(), "select p.proconfig from pg_proc as p where p.oid = 'pawl_v1.inbox_claim'::regproc").Scan(&config); err != nil ||
		!slices.Contains(config, "lock_timeout=50ms") {
		t.Errorf("the settings of inbox_claim are %v (%v), want lock_timeout=50ms", config, err)
	}

	tx := begin(t, pool, pgx.ReadCommitted)
	take(t, tx, intent("n", "a"))
	var limit string
	if err := tx.QueryRow(t.Context(), "show lock_timeout").Scan(&limit); err != nil || limit != "0" {
		t.Errorf("the handler's lock_timeout is %s (%v), want the session's own", limit, err)
	}
}

// At stricter isolation, callers get an answer or 40001, never a second effect (trap T30).
func TestT30_StricterIsolationNeverDoubles(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t)
			late := begin(t, pool, level)
			if _, err := late.Exec(t.Context(), "select 1"); err != nil { // takes the snapshot
				t.Fatal(err)
			}
			winner := begin(t, pool, level)
			take(t, winner, intent("m", "a"))
			commit(t, winner)
			c, err := delivery.Take(t.Context(), late, intent("m", "a"))
			if err == nil && c.Fresh {
				t.Fatal("both own the delivery")
			}
			if err != nil && pawl.CodeOf(err) != "40001" {
				t.Errorf("got %v, want 40001", err)
			}
			if level == pgx.ReadCommitted && err != nil {
				t.Errorf("at READ COMMITTED the winner must be seen (trap T14): %v", err)
			}
		})
	}
}

// If many workers claim one delivery at once, one gets it fresh. The others get in progress or
// duplicate.
func TestTake_RaceHasOneWinner(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table effect (n int)")
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				c, err := delivery.Take(t.Context(), tx, intent("m", "a"))
				if err != nil || !c.Fresh {
					return err
				}
				_, err = tx.Exec(t.Context(), "insert into effect values (1)")
				return err
			})
			if err != nil && pawl.CodeOf(err) != "55P03" {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var effects int
	if err := pool.QueryRow(t.Context(), "select count(*) from effect").Scan(&effects); err != nil || effects != 1 {
		t.Errorf("%d effects, want 1 (%v)", effects, err)
	}
}

// A job owns its stored delivery: a redelivery is a duplicate, and only that job may settle it.
func TestStore_JobOwnsTheDelivery(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	c := take(t, tx, intent("m", "a"))
	id, err := c.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k", Payload: []byte{0, 0xff, 'x'}, Failure: errors.New("nul \x00 and \xff")})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tx)

	tx = begin(t, pool, pgx.ReadCommitted)
	if again := take(t, tx, intent("m", "a")); again.Fresh || again.JobID != id {
		t.Errorf("redelivery of a stored message: %+v", again)
	}
	other := begin(t, pool, pgx.ReadCommitted)
	if err := delivery.Settle(t.Context(), other, "billing", "m", id+1); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("settled by another job: %v", err)
	}
	if err := delivery.Settle(t.Context(), tx, "billing", "m", id); err != nil {
		t.Fatal(err)
	}
	err = delivery.Settle(t.Context(), tx, "billing", "m", id)
	if !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("settled twice: %v", err)
	}
}

// A delivery that another transaction committed took effect, so it cannot be stored and run again.
func TestStore_RefusesWhatAnotherTransactionCommitted(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	stale := take(t, tx, intent("m", "a"))
	commit(t, tx)

	tx = begin(t, pool, pgx.ReadCommitted)
	_, err := stale.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k"})
	if !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("got %v, want ErrFenceLost", err)
	}
	if _, err := (delivery.Claim{}).Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k"}); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("the zero claim stored: %v", err)
	}
}

// A row that was committed while this transaction was open is not ours either, although its
// transaction id is higher.
func TestStore_RefusesWhatWasCommittedMeanwhile(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, "create table other (n int)")
	tx := begin(t, pool, pgx.ReadCommitted)
	// assigns the transaction id
	if _, err := tx.Exec(t.Context(), "insert into other values (1)"); err != nil {
		t.Fatal(err)
	}
	early, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := take(t, early, intent("m", "a"))
	if err := early.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	winner := begin(t, pool, pgx.ReadCommitted)
	take(t, winner, intent("m", "a"))
	commit(t, winner)
	if _, err := lost.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k"}); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("got %v, want ErrFenceLost", err)
	}
}

// A claim made in a released savepoint belongs to this transaction.
func TestStore_AcceptsAClaimFromASavepoint(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	savepoint, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := take(t, savepoint, intent("m", "a"))
	if err := savepoint.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Store(t.Context(), tx, delivery.Storage{Queue: "q", Kind: "k"}); err != nil {
		t.Error(err)
	}
}
