package catalog

import (
	"fmt"
	"strings"
)

// A Page says which rows of a list are read.
type Page struct {
	After []string // the cursor columns of the row before; nil: from the beginning
	Limit int
}

// A query is a statement behind its select list. Only what is asked for stands in it, so that the planner sees through it to an index.
type query struct {
	from  string
	where []string
	args  []any
}

// only adds a condition on value, which stands in it as %s.
func (q *query) only(condition string, value any) {
	q.args = append(q.args, value)
	q.where = append(q.where, fmt.Sprintf(condition, fmt.Sprintf("$%d", len(q.args))))
}

// also adds a condition without a value.
func (q *query) also(condition string) { q.where = append(q.where, condition) }

// behind adds that rows lie behind a page's cursor in the order of some columns, of which types says the types.
func (q *query) behind(p Page, columns []string, types []string) {
	if p.After == nil {
		return
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		q.args = append(q.args, p.After[i])
		values[i] = fmt.Sprintf("$%d::text::%s", len(q.args), types[i])
		columns[i] = "r." + c
	}
	if len(columns) == 1 {
		q.also(columns[0] + " > " + values[0])
		return
	}
	q.also("(" + strings.Join(columns, ", ") + ") > (" + strings.Join(values, ", ") + ")")
}

// text is the statement behind the select list.
func (q *query) text() string {
	if len(q.where) == 0 {
		return q.from
	}
	return q.from + "\n where " + strings.Join(q.where, "\n   and ")
}

// page is text with an order, and the limit of a page.
func (q *query) page(p Page, order string) string {
	text := q.text() + "\n order by " + order
	if p.Limit > 0 {
		q.args = append(q.args, p.Limit)
		text += fmt.Sprintf("\n limit $%d", len(q.args))
	}
	return text
}
