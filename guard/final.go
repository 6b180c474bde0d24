package guard

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// A usedUp row has no attempts left, see [SweeperConfig].MaxAttempts.
type usedUp struct {
	ID       string
	Attempts int
	Error    string
}

// spent returns the conditions for rows without attempts left whose error is not marked yet: failed
// rows, and claimed rows that are stuck.
func (s *Sweeper) spent() []condition {
	t := s.rows.table
	all := []condition{{t.Error, s.fill(spent + " and " + notFinal)}}
	if t.ClaimedAt != None {
		all = append(all, condition{t.Processing, s.fill(spent + " and " + stuck)})
	}
	return all
}

// New errors of rows without attempts left. A mark makes an error at most 93 characters long, or
// leaves its length: an error too long for its column would stop every sweep.
const (
	marked = `pg_catalog.left('{final}' || coalesce({LastError}::text, ''), greatest(pg_catalog.length({LastError}::text), 93))`
)

// silentText is the error of a row whose last attempt was taken back. No attempt writes it.
const silentText = `'` + finalMark + `the last attempt died, or took longer than StuckAfter'`

// markFinal marks rows as final. It tests the condition again on each row that it locked.
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

// useUp marks rows as final.
func (s *Sweeper) useUp(ctx context.Context, tx pgx.Tx, spent condition) ([]usedUp, error) {
	why := marked
	if spent.state == s.rows.table.Processing {
		why = silentText
	}
	rows, err := tx.Query(ctx, s.fill(markFinal, "{state}", literal(spent.state), "{also}", spent.also, "{why}", s.fill(why)))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[usedUp])
}

const (
	countEvery = 15 * time.Second // interval between counts of final rows
	countMost  = 1001
)

const countFinal = `select pg_catalog.count(*)
  from (
    select
      from {Name}
     where {Status} = {Error} and {LastError} like '{final}%'
     limit {most}) as f`

// countFinal counts the final rows, up to countMost, if the last count is countEvery ago.
func (s *Sweeper) countFinal(ctx context.Context, tx pgx.Tx, found *passResult) error {
	if time.Since(s.measured) < countEvery {
		return nil
	}
	found.counted = true
	return tx.QueryRow(ctx, s.fill(countFinal, "{most}", strconv.Itoa(countMost))).Scan(&found.final)
}
