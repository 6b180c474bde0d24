package txn

import "testing"

// What ends a transaction is told from what goes back to a savepoint, and from other statements.
func TestEnds_OnlyWhatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"commit", " COMMIT AND CHAIN", "end;", "abort", "rollback", "Rollback and chain", "rollback; begin", "rollback work",
		"-- a note\nrollback transaction and chain", "prepare transaction 'x'"} {
		if !ends(query) {
			t.Errorf("%q ends a transaction", query)
		}
	}
	for _, query := range []string{"", "rollback to a", "ROLLBACK TO SAVEPOINT a", "rollback work to a", "rollback transaction to savepoint a", "prepare p as select 1",
		"begin", "savepoint commit", "insert into commit values (1)", "endless"} {
		if ends(query) {
			t.Errorf("%q ends no transaction", query)
		}
	}
}
