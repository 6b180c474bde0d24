package schematest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/pawltest"
)

// A duel is two sessions on one job, in one interleaving at one isolation level. Both took their
// snapshots before anything happened, which matters at the higher levels.
type duel struct {
	*testing.T
	level string
	a, b  *session
	url   string
}

// lost is the error with which a transaction with an old snapshot must start over.
const lost = "40001"

// duels runs an interleaving at each level, each in a new database.
func duels(t *testing.T, given string, play func(d *duel)) {
	t.Helper()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			url := pawltest.URL(t)
			exec1(t, url, "insert into pawl.worker (name) values ('one'), ('two'); "+
				"insert into pawl.job (queue, kind, payload) values ('q', 'k', ''); "+patient+given)
			d := &duel{T: t, level: level, url: url, a: openSession(t, url, "a"), b: openSession(t, url, "b")}
			for _, s := range []*session{d.a, d.b} {
				s.Do("begin isolation level " + level)
				s.Do("select count(*) from pawl.job, pawl.inbox")
			}
			play(d)
		})
	}
}

// want requires one result at READ COMMITTED. With an older snapshot, the transaction may also have
// to start over.
func (d *duel) want(got, want string) {
	d.Helper()
	if got != want && (got != lost || d.level == "read committed") {
		d.Errorf("got %s, want %s", got, want)
	}
}

// exactly requires one result at every level.
func (d *duel) exactly(got, want string) {
	d.Helper()
	if got != want {
		d.Errorf("got %s, want %s", got, want)
	}
}

// job requires the state of the job after both sessions have ended; "" means that it is deleted.
func (d *duel) job(want string) {
	d.Helper()
	d.b.Do("rollback")
	d.exactly(openSession(d.T, d.url, "after").Do("select status, fence, claimed_by, crashes from pawl.job"), want)
}

const (
	held    = "update pawl.job set status = 'processing', claimed_by = 1, fence = 1, attempts = 1;"
	retaken = "update pawl.job set status = 'processing', claimed_by = 2, fence = 2, attempts = 2;"
	expired = "update pawl.worker set seen_at = now() - interval '1 hour' where id = 1;"

	claimA  = "select c.id, c.fence from pawl_v1.job_claim('q', 1) as c"
	claimB  = "select c.id, c.fence from pawl_v1.job_claim('q', 2) as c"
	finish1 = "select f.outcome from pawl_v1.job_finish(1, 1) as f"
	finish2 = "select f.outcome from pawl_v1.job_finish(1, 2) as f"
	sweep   = "select s.outcome, s.requeued from pawl_v1.job_sweep('{k}') as s"
)

func TestIsolation_ClaimClaim(t *testing.T) {
	t.Parallel()
	duels(t, "", func(d *duel) {
		d.exactly(d.a.Do(claimA), "1 1")
		d.exactly(d.b.Do(claimB), "") // a claim never waits
		d.a.Do("commit")
		d.want(d.b.Do(claimB), "")
		d.job("processing 1 1 0")
	})
}

func TestIsolation_ClaimFinish(t *testing.T) {
	t.Parallel()
	duels(t, held, func(d *duel) {
		d.exactly(d.a.Do(finish1), "finished")
		d.exactly(d.b.Do(claimB), "")
		d.a.Do("commit")
		d.want(d.b.Do(claimB), "")
		d.job("")
	})
}

// A job is released and claimed again while its old holder finishes. The old holder's finish is
// refused with any snapshot.
func TestIsolation_ReclaimFinish(t *testing.T) {
	t.Parallel()
	duels(t, held, func(d *duel) {
		exec1(d.T, d.url, "select pawl_v1.job_release(1, 1)")
		d.a.Do("rollback")
		d.a.Do("begin isolation level " + d.level)
		d.exactly(d.a.Do(claimA), "1 2")
		got := d.b.Do(finish1)
		d.a.Do("commit")
		if got == blocked {
			got = d.b.Wait()
		}
		d.want(got, "P4020")
		d.job("processing 2 1 0")
	})
}

// After a lost reply to COMMIT, a second finish with the same fence waits, and learns that the job
// has ended.
func TestIsolation_FinishFinish(t *testing.T) {
	t.Parallel()
	duels(t, held, func(d *duel) {
		d.exactly(d.a.Do(finish1), "finished")
		d.exactly(d.b.Do(finish1), blocked)
		d.a.Do("commit")
		d.want(d.b.Wait(), "P4020")
		d.job("")
	})
}

// If the first finish rolls back, the second one finishes the job.
func TestIsolation_FinishFinishAborted(t *testing.T) {
	t.Parallel()
	duels(t, held, func(d *duel) {
		d.exactly(d.a.Do(finish1), "finished")
		d.exactly(d.b.Do(finish1), blocked)
		d.a.Do("rollback")
		d.exactly(d.b.Wait(), "finished")
		d.exactly(d.b.Do("commit"), "")
		d.job("")
	})
}

// A stale attempt is refused at once, before and after the holder's commit.
func TestIsolation_ZombieFinish(t *testing.T) {
	t.Parallel()
	duels(t, retaken, func(d *duel) {
		d.exactly(d.a.Do(finish2), "finished")
		d.b.Do("savepoint s")
		d.exactly(d.b.Do(finish1), "P4020")
		d.b.Do("rollback to s")
		d.a.Do("commit")
		d.exactly(d.b.Do(finish1), "P4020")
		d.job("")
	})
}

func TestIsolation_FinishThenSweep(t *testing.T) {
	t.Parallel()
	duels(t, held+expired, func(d *duel) {
		d.exactly(d.a.Do(finish1), "finished")
		d.exactly(d.b.Do(sweep), "swept 0") // a locked row has a live holder
		d.a.Do("commit")
		d.want(d.b.Do(sweep), "swept 0")
		d.job("")
	})
}

func TestIsolation_SweepThenFinish(t *testing.T) {
	t.Parallel()
	duels(t, held+expired, func(d *duel) {
		d.exactly(d.a.Do(sweep), "swept 1")
		d.exactly(d.b.Do(finish1), blocked)
		d.a.Do("commit")
		d.want(d.b.Wait(), "P4020")
		d.job("pending 1 <nil> 1")
	})
}

func TestIsolation_SweepAbortedThenFinish(t *testing.T) {
	t.Parallel()
	duels(t, held+expired, func(d *duel) {
		d.exactly(d.a.Do(sweep), "swept 1")
		d.exactly(d.b.Do(finish1), blocked)
		d.a.Do("rollback")
		d.exactly(d.b.Wait(), "finished")
		d.b.Do("commit")
		d.job("")
	})
}

func TestIsolation_SweepSweep(t *testing.T) {
	t.Parallel()
	duels(t, held+expired, func(d *duel) {
		d.exactly(d.a.Do(sweep), "swept 1")
		d.exactly(d.b.Do(sweep), "busy 0")
		d.a.Do("commit")
		d.want(d.b.Do(sweep), "swept 0")
		d.b.Do("commit")
		d.job("pending 1 <nil> 1") // one crash, not two
	})
}

// The sweep's advisory lock only saves work. Without it, two concurrent sweeps are also safe.
func TestIsolation_SweepSweepWithoutItsLock(t *testing.T) {
	t.Parallel()
	duels(t, held+expired, func(d *duel) {
		conn := connect(d.T, d.url)
		var source string
		err := conn.QueryRow(d.Context(), "select pg_get_functiondef('pawl_v1.job_sweep'::regproc)").Scan(&source)
		if err != nil || strings.Count(source, "pg_try_advisory_xact_lock(1885435756, 1)") != 1 {
			d.Fatalf("the lock is not where it was: %v", err)
		}
		exec1(d.T, d.url, strings.Replace(source, "pg_try_advisory_xact_lock(1885435756, 1)", "true", 1))
		d.exactly(d.a.Do(sweep), "swept 1")
		d.exactly(d.b.Do(sweep), "swept 0")
		d.a.Do("commit")
		d.want(d.b.Do(sweep), "swept 0")
		d.b.Do("commit")
		d.job("pending 1 <nil> 1")
	})
}

// Two sessions claim one delivery. The function normally waits at most 50 ms. Here it waits until
// the other session has ended.
func TestIsolation_InboxClaimClaim(t *testing.T) {
	t.Parallel()
	const waits = "alter function pawl_v1.inbox_claim set lock_timeout = '10min'"
	claim := func(hash string) string {
		return "select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('" + hash + "')) as c"
	}
	for name, c := range map[string]struct{ hash, end, want string }{
		"same payload, committed":    {"one", "commit", "duplicate_ignored"},
		"other payload, committed":   {"two", "commit", "P4002"},
		"same payload, rolled back":  {"one", "rollback", "processed"},
		"other payload, rolled back": {"two", "rollback", "processed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			duels(t, waits, func(d *duel) {
				d.exactly(d.a.Do(claim("one")), "processed")
				d.exactly(d.b.Do(claim(c.hash)), blocked)
				d.a.Do(c.end)
				d.want(d.b.Wait(), c.want)
				d.b.Do("commit")
				if n := openSession(d.T, d.url, "after").Do("select count(*) from pawl.inbox"); n != "1" && !(n == "0" && c.end == "rollback") {
					d.Errorf("%s rows", n)
				}
			})
		})
	}
}

// With the installed lock timeout, the second claim returns in_progress instead of waiting.
func TestIsolation_InboxInProgress(t *testing.T) {
	t.Parallel()
	duels(t, "", func(d *duel) {
		const claim = "select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('')) as c"
		d.exactly(d.a.Do(claim), "processed")
		got := d.b.Do(claim)
		if got == blocked {
			got = d.b.Wait()
		}
		d.exactly(got, "55P03")
		d.a.Do("commit")
	})
}

// Names are compared by octets in any collation of the database. Claims, keys and duplicates work
// in a database with a linguistic collation.
func TestCollation_ChangesNothing(t *testing.T) {
	t.Parallel()
	url := linguistic(t)
	conn := connect(t, url)
	ask := func(statement string) (answers []string) {
		t.Helper()
		rows, err := conn.Query(t.Context(), statement)
		if err == nil {
			answers, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		return answers
	}
	same := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	ask("select r.worker_id::text from pawl_v1.worker_register('w') as r")
	// Equal or adjacent in a linguistic collation.
	for _, name := range []string{"a", "A", "á", "a\u0301", "a-b", "ab"} {
		queue := "'" + name + "'"
		same(ask("select e.outcome from pawl_v1.job_enqueue("+queue+", 'k', '', '{\"key\": \"x\"}') as e"), "enqueued")
		same(ask("select e.outcome from pawl_v1.job_enqueue("+queue+", 'k', '', '{\"key\": \"x\"}') as e"), "duplicate")
		same(ask("select c.outcome from pawl_v1.inbox_claim('c', "+queue+", sha256('')) as c"), "processed")
		same(ask("select c.outcome from pawl_v1.inbox_claim('c', "+queue+", sha256('')) as c"), "duplicate_ignored")
		same(ask("select c.kind from pawl_v1.job_claim("+queue+", 1, 10) as c"), "k")
		same(ask("select c.kind from pawl_v1.job_claim(" + queue + ", 1, 10) as c"))
	}
	same(ask("select i.key from pawl.inbox as i order by i.key"), "A", "a", "a-b", "ab", "a\u0301", "á")
}

// If a refusal is rolled back to a savepoint, the rows written before it stay. So the fence must be
// proved first. With job_hold as the first statement there are no such rows.
func TestSavepoint_KeepsWhatAStaleAttemptWrote(t *testing.T) {
	t.Parallel()
	duels(t, "create table effects (id int); "+retaken, func(d *duel) {
		for _, script := range []string{"insert into effects values (1); savepoint s; select pawl_v1.job_finish(1, 1)",
			"select pawl_v1.job_hold(1, 1)"} {
			d.a.Do("rollback")
			d.a.Do("begin isolation level " + d.level)
			var got string
			for _, step := range strings.Split(script, "; ") {
				got = d.a.Do(step)
			}
			d.exactly(got, "P4020")
			d.a.Do("rollback to savepoint s")
			d.a.Do("commit")
			d.exactly(openSession(d.T, d.url, "after").Do("select count(*) from effects"), "1")
		}
	})
}

// A snapshot older than the claim does not see it, so claim before you begin the transaction.
func TestIsolation_SnapshotOlderThanTheClaim(t *testing.T) {
	t.Parallel()
	duels(t, "", func(d *duel) {
		exec1(d.T, d.url, "select pawl_v1.job_claim('q', 1)")
		hold, finish := "held", "finished"
		if d.level != "read committed" {
			hold, finish = lost, "P4020"
		}
		d.exactly(d.a.Do("select h.outcome from pawl_v1.job_hold(1, 1) as h"), hold)
		d.a.Do("rollback")
		d.exactly(d.b.Do(finish1), finish)
		d.job("processing 1 1 0")
	})
}
