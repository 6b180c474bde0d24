package ops

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	changeLimit  = 100 // audit records, or calls of a step, that are read of one thing
)

// A Page is the result of one List.
type Page[T any] struct {
	Rows []T
	Next string // After of the next page; empty: this was the last
}

// pageOf returns the catalog's page for a selection. It reads one row more than the limit, to see
// whether there is another page. after has as many parts as the order has columns.
func pageOf(op, after string, limit int, valid ...func(part string) bool) (catalog.Page, error) {
	if limit < 0 || limit > maxLimit {
		return catalog.Page{}, invalid(op, fmt.Errorf("the limit must lie between 1 and %d, it is %d", maxLimit, limit), "read several pages with After")
	}
	limit = cmp.Or(limit, defaultLimit)
	p := catalog.Page{Limit: limit + 1}
	if after == "" {
		return p, nil
	}
	for i, part := range strings.Split(after, "/") {
		text, err := url.PathUnescape(part)
		if err != nil || i >= len(valid) || !valid[i](text) {
			return p, noCursor(op, after)
		}
		p.After = append(p.After, text)
	}
	if len(p.After) != len(valid) {
		return p, noCursor(op, after)
	}
	return p, nil
}

func noCursor(op, after string) error {
	return invalid(op, fmt.Errorf("%.255q is not a cursor", after), "pass Page.Next of the previous page")
}

// Checks of a cursor's parts.
func anyText(string) bool { return true }
func anID(part string) bool {
	id, err := strconv.ParseInt(part, 10, 64)
	return err == nil && id >= 0
}
func aTime(part string) bool {
	_, err := time.Parse(time.RFC3339Nano, part)
	return err == nil
}

// cut makes a page of rows that were read with a limit of one more. cursor returns the values of
// the order's columns.
func cut[T any](rows []T, p catalog.Page, cursor func(T) []string) Page[T] {
	if len(rows) < p.Limit {
		return Page[T]{Rows: listed(rows)}
	}
	rows = rows[:p.Limit-1]
	parts := cursor(rows[len(rows)-1])
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return Page[T]{Rows: rows, Next: strings.Join(parts, "/")}
}

func id(n int64) string          { return strconv.FormatInt(n, 10) }
func instant(t time.Time) string { return t.Format(time.RFC3339Nano) }

// only returns the row that a Get has read, or ErrNotFound.
func only[T any](rows []T, err error, op string, what string) (row T, _ error) {
	if err == nil && len(rows) == 0 {
		err = &pawl.Error{Op: op, Code: pawl.CodeNotFound, Err: fmt.Errorf("there is no %s", what)}
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

func invalid(op string, why error, next string) error {
	return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: why, Hint: next}
}

// texts converts statuses or codes to strings. It returns nil for an empty list, which means no
// condition.
func texts[T ~string](values []T) []string {
	if len(values) == 0 {
		return nil
	}
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// checkStatuses returns an error for a status that the noun does not have.
func checkStatuses(op string, have, given []Status) error {
	for _, s := range given {
		if !slices.Contains(have, s) {
			return invalid(op, fmt.Errorf("unknown status %q", s), "known: "+strings.Join(texts(have), ", "))
		}
	}
	return nil
}
