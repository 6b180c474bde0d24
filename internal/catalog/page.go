package catalog

import (
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

// also adds a condition that has no value.
func (q *query) also(condition string) { q.where = append(q.where, condition) }

// behind adds the condition that rows follow a page's cursor in the order of columns. types holds
// their SQL types.
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

// text returns the statement without its select list.
func (q *query) text() string {
	if len(q.where) == 0 {
		return q.from
	}
	return q.from + "\n where " + strings.Join(q.where, "\n   and ")
}

// page returns text with an ORDER BY and the page's limit.
func (q *query) page(p Page, order string) string {
	text := q.text() + "\n order by " + order
	if p.Limit > 0 {
		q.args = append(q.args, p.Limit)
		text += fmt.Sprintf("\n limit $%d", len(q.args))
	}
	return text
}
