//go:build proof

package schematest_test

import (
	"testing"
)

// The sweep checks again under its lock, so a row inserted meanwhile stays. A mutant without that
// check deletes it.
func TestArchiveSweep_LooksAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ edit, want string }{
		"as it is": {"", "7, 99"},
		"mutant: truncate without looking again": {`select play.replace('pawl_v1.archive_sweep'::regproc,
  'come in between.
        if pawl_v1._archive_is_old(v_slot, v_edge) then', 'come in between.
        if true then')`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyDay(t, func(t *testing.T, day ringDay) {
				b := setup(t, protocolTables+";"+day.rows(7))
				if c.edit != "" {
					b.do(c.edit)
				}
				// A young row commits after the first check and before the lock.
				b.do(edited("archive_sweep", "execute format('lock table", "perform pg_advisory_xact_lock(17); execute format('lock table"))
				b.do("alter function pawl_v1.archive_sweep() reset lock_timeout")
				gate, young := b.open("gate"), b.open("young")
				gate.Do("begin; select pg_advisory_xact_lock(17)")
				if got := b.main.Do(sweepRing); got != blocked {
					t.Fatal(got)
				}
				young.Do("insert into pawl.archive_" + day.table(7) + " select 99, 1, null, now(), " + day.noon() + ", 2, 1, 0, 'q', 'k', null, '', null")
				gate.Do("commit")
				b.main.Wait()
				b.is(archived, c.want)
			})
		})
	}
}
