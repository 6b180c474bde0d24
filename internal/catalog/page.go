package catalog

import (
	"context"
	"fmt"
	"strings"
)

// A Page selects the rows of a list to read.
type Page struct {
	After []string // the cursor columns of the previous row; nil: from the beginning
	Limit int
}

// A query is a statement without its select list. It contains only the conditions that were asked
// for, so that the planner can match them to an index.
type query struct {
	from  string
	where []string
	args  []any
}

// only adds a condition on value. The condition has %s in the place of value.
func (q *query) only(condition string, value any) {
	q.args = append(q.args, value)
	q.where = append(q.where, fmt.Sprintf(condition, fmt.Sprintf("$%d", len(q.args))))
}

func (q *query) also(condition string) { q.where = append(q.where, condition) }

// equal adds the condition that a column has a value, unless the value is empty.
func (q *query) equal(column, value string) {
	if value != "" {
		q.only(column+" = %s", value)
	}
}

// among adds the condition that a column has one of the values, unless there are none.
func (q *query) among(column string, values []string) {
	if len(values) > 0 {
		q.only(column+" = any (%s)", values)
	}
}

// A key is a column by which rows are ordered, and its SQL type.
type key struct{ column, sqlType string }

// text returns the statement without its select list.
func (q *query) text() string {
	if len(q.where) == 0 {
		return q.from
	}
	return q.from + "\n where " + strings.Join(q.where, "\n   and ")
}

// page returns text for the rows that follow a page's cursor, in the order of the keys.
func (q *query) page(p Page, order ...key) string {
	columns, after := make([]string, len(order)), make([]string, len(order))
	for i, k := range order {
		columns[i] = "r." + k.column
		if p.After != nil {
			q.args = append(q.args, p.After[i])
			after[i] = fmt.Sprintf("$%d::text::%s", len(q.args), k.sqlType)
		}
	}
	by := strings.Join(columns, ", ")
	switch {
	case p.After == nil:
	case len(order) == 1:
		q.also(by + " > " + after[0])
	default:
		q.also("(" + by + ") > (" + strings.Join(after, ", ") + ")")
	}
	return q.limited(p, by)
}

// limited returns text with an ORDER BY and the page's limit.
func (q *query) limited(p Page, order string) string {
	text := q.text() + "\n order by " + order
	if p.Limit > 0 {
		q.args = append(q.args, p.Limit)
		text += fmt.Sprintf("\n limit $%d", len(q.args))
	}
	return text
}

// readPage reads a page of rows in the order of the keys.
func readPage[T any](ctx context.Context, db DB, op string, q *query, p Page, order ...key) ([]T, error) {
	text := q.page(p, order...)
	return lookRows[T](ctx, db, op, text, q.args...)
}
