package counted

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/checker"
)

// judge compares the sent orders with the rows.
func (s *stage) judge() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), time.Minute)
	defer cancel()
	v := s.verdict
	h := checker.History{Balances: map[string]int64{}, DeadLetters: map[string]checker.Order{}}
	for _, o := range s.book.all() {
		h.Sent = append(h.Sent, o.checked())
	}
	steps := s.rows(ctx, &h)
	v.Verdict = checker.Judge(h)
	v.Sent = s.book.sent()
	v.Deliveries, v.Again, _ = s.witness.counts()
	v.Duplicates = s.witness.count(pawl.EventDuplicateSkipped)
	if s.transport.Ordered {
		late := checker.OutOfOrder(steps)
		v.Inversions = len(late)
		for i, step := range late {
			if i < 20 {
				v.Violations = append(v.Violations, fmt.Sprintf("%s: number %d took effect after a later one", step.Line, step.Number))
			}
		}
	}
	for _, key := range s.wrong(h) {
		v.Stories = append(v.Stories, s.story(ctx, key)...)
	}
}

// rows reads the handlers' rows and the dead letters, and returns the effects in their order.
func (s *stage) rows(ctx context.Context, h *checker.History) (steps []checker.Step) {
	s.Helper()
	rows, err := s.pool.Query(ctx, "select key, lane, number, cents from orders order by id")
	s.must(err)
	var o order
	_, err = pgx.ForEachRow(rows, []any{&o.Key, &o.Lane, &o.Number, &o.Cents}, func() error {
		h.Orders = append(h.Orders, o.checked())
		steps = append(steps, checker.Step{Line: o.Lane, Number: o.Number})
		h.Balances[o.Lane] += o.Cents
		return nil
	})
	s.must(err)
	rows, err = s.pool.Query(ctx, "select key, cents from ledger")
	s.must(err)
	h.Ledger, err = pgx.CollectRows(rows, pgx.RowToStructByPos[checker.LedgerEntry])
	s.must(err)
	rows, err = s.pool.Query(ctx, "select payload from pawl_v1.dead_letters")
	s.must(err)
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&payload}, func() error {
		letter, err := parse(payload)
		if err != nil {
			s.verdict.breaks("a dead letter holds %.100q", payload)
			return nil
		}
		if _, twice := h.DeadLetters[letter.Key]; twice {
			s.verdict.breaks("%s has two dead letters", letter.Key)
		}
		h.DeadLetters[letter.Key] = letter.checked()
		return nil
	})
	s.must(err)
	return steps
}

// wrong returns up to three orders that did not take effect once.
func (s *stage) wrong(h checker.History) (keys []string) {
	effects := map[string]int{}
	for _, o := range h.Orders {
		effects[o.Key]++
	}
	for _, o := range h.Sent {
		if _, kept := h.DeadLetters[o.Key]; effects[o.Key] > 1 || effects[o.Key] == 0 && !kept {
			keys = append(keys, o.Key)
		}
	}
	slices.Sort(keys)
	return keys[:min(3, len(keys))]
}

// story returns what happened to an order: its deliveries by process, and its rows.
func (s *stage) story(ctx context.Context, key string) []string {
	lines := append([]string{"story of " + key + ":"}, s.witness.story(key)...)
	for _, part := range []struct{ what, sql string }{
		{"inbox row", "select to_jsonb(i)::text from pawl.inbox as i where i.key = $1"},
		{"job row", "select (to_jsonb(j) - 'payload')::text from pawl.job as j where j.headers ->> 'pawl-key' = $1"},
		{"effect", "select to_jsonb(o)::text from orders as o where o.key = $1 order by o.id"},
	} {
		rows, err := s.pool.Query(ctx, part.sql, key)
		if err != nil {
			return append(lines, err.Error())
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return append(lines, err.Error())
		}
		if len(texts) == 0 {
			lines = append(lines, "  no "+part.what)
		}
		for _, text := range texts {
			lines = append(lines, "  "+part.what+": "+text)
		}
	}
	return lines
}
