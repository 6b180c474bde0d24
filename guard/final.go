package guard

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// A usedUp row has been tried as often as [SweeperConfig] allows.
type usedUp struct {
	ID       string
	Attempts int
	Error    string
}

// spent are the sorts of rows whose attempts are used up and whose error is not marked: those that
// failed, and those whose last holder was silent.
func (s *Sweeper) spent() []condition {
	t := s.rows.table
	all := []condition{{t.Error, s.fill(spent + " and " + notFinal)}}
	if t.ClaimedAt != None {
		all = append(all, condition{t.Processing, s.fill(spent + " and " + stuck)})
	}
	return all
}

// Errors of rows that are used up. A mark makes no error longer than it was or than 93 characters,
// so that it fits into the column: one that does not would stop each sweep.
const (
	marked = `pg_catalog.left('{final}' || coalesce({LastError}::text, ''), greatest(pg_catalog.length({LastError}::text), 93))`
	silent = `'{final}the last attempt died, or took longer than StuckAfter'`
)

// markFinal ends rows for good. The condition is tested again on the row that changes.
const markFinal = `update {Name}
   set {Status} = {Error}
     , {LastError} = {why}
 where {ID} = any (array(
         select {ID}
           from {Name}
          where {Status} = {state} and {also}
          limit {Limit}
            for update skip locked))
   and {Status} = {state} and {also}
returning {ID}::text, {AttemptCount}, {LastError}::text`

// useUp ends rows for good whose attempts are used up.
func (s *Sweeper) useUp(ctx context.Context, tx pgx.Tx, spent condition) ([]usedUp, error) {
	why := marked
	if spent.state == s.rows.table.Processing {
		why = silent
	}
	rows, err := tx.Query(ctx, s.fill(markFinal, "{state}", literal(spent.state), "{also}", spent.also, "{why}", s.fill(why)))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[usedUp])
}

const (
	countEvery = 15 * time.Second // of final rows
	countMost  = 1001
)

const countFinal = `select pg_catalog.count(*)
  from (
    select
      from {Name}
     where {Status} = {Error} and {LastError} like '{final}%'
     limit {most}) as f`

// countFinal counts the rows that are not driven any more, now and then, up to countMost.
func (s *Sweeper) countFinal(ctx context.Context, tx pgx.Tx, found *passResult) error {
	if time.Since(s.measured) < countEvery {
		return nil
	}
	found.counted = true
	return tx.QueryRow(ctx, s.fill(countFinal, "{most}", strconv.Itoa(countMost))).Scan(&found.final)
}
