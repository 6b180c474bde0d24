package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/schedule"
)

// Put on a database without Pawl's schema returns the command that installs it.
func TestPut_NamesTheNextStepOfASetup(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.URL(t, pgtest.Template{Name: "empty"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	_, err = schedule.Put(t.Context(), pool, schedule.Schedule{Name: "nightly", Plan: schedule.Every(time.Hour), Queue: "q", Kind: "k"})
	if err == nil || !strings.Contains(err.Error(), "pawl migrate up") {
		t.Error(err)
	}
}
