package txn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

// A lost race is recognised only by its code, in any wrapping.
func TestLostRace_ReadsTheCode(t *testing.T) {
	t.Parallel()
	sqlstate := func(code string) error { return &pgconn.PgError{Code: code} }
	for err, want := range map[error]bool{
		sqlstate("40001"): true,
		sqlstate("40P01"): true,
		fmt.Errorf("insert: %w", sqlstate("40001")): true,
		pawl.Final(sqlstate("40P01")):               true,
		pawl.Wrap("job.finish", sqlstate("40001")):  true,
		sqlstate("40003"):                           false,
		sqlstate("55P03"):                           false,
		&pawl.Error{Code: pawl.CodeCommitUnknown}:   false,
		errors.New("40001"):                         false,
	} {
		if LostRace(err) != want {
			t.Errorf("%v: %v, want %v", err, !want, want)
		}
	}
	if LostRace(nil) {
		t.Error("no error is a lost race")
	}
}
