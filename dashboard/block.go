package dashboard

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// A page is a list of blocks. The templates know only blocks, so escaping and looks are decided
// once for all pages.
type block interface{ Kind() string }

type heading string

// A note is a sentence that stands out.
type note struct {
	Class string // "notice" or "trouble"
	Text  string
	Hint  string // the next step; optional
}

type facts []fact

type fact struct {
	Name  string
	Value cell
}

type table struct {
	Caption string
	Head    []string // a name that begins with "#" is a column of numbers, aligned right
	Rows    [][]cell
	Next    string // address of the next page, or "" on the last
	Empty   empty  // shown if there are no rows
}

type cell struct {
	Text   string
	Link   string
	Class  string
	Status ops.Status // in place of Text
	At     time.Time  // in place of Text
	Mono   bool       // a key or an id
}

type filter struct {
	Address string
	Fields  []field
}

type field struct {
	Name, Label, Value, Help string
	Options                  []string // a choice of these; empty: any text
}

// needs are kinds of objects that need an operator, with their counts.
type needs []need

type need struct {
	Count, Text, Link, Class string
}

type verbs []verbLink

type verbLink struct {
	Text, Link string
	Danger     bool
}

// A text is shown as it is, in lines.
type text string

func (heading) Kind() string  { return "heading" }
func (note) Kind() string     { return "note" }
func (facts) Kind() string    { return "facts" }
func (table) Kind() string    { return "table" }
func (filter) Kind() string   { return "filter" }
func (needs) Kind() string    { return "needs" }
func (verbs) Kind() string    { return "verbs" }
func (text) Kind() string     { return "text" }
func (timeline) Kind() string { return "timeline" }

func (v *view) add(blocks ...block) { v.Blocks = append(v.Blocks, blocks...) }

// Constructors of cells.

func plain(value any) cell { return cell{Text: fmt.Sprint(value)} }

func mono(value any) cell { return cell{Text: fmt.Sprint(value), Mono: true} }

func linked(value any, link string) cell {
	return cell{Text: fmt.Sprint(value), Link: link, Mono: true}
}

// figure is a count. A zero stands back.
func figure(n int) cell {
	if n == 0 {
		return cell{Text: "0", Class: "quiet"}
	}
	return cell{Text: number(n)}
}

// capped is a count of glance.
func capped(n int) cell {
	if n > countLimit {
		return cell{Text: number(countLimit) + "+"}
	}
	return figure(n)
}

// alarming is a count that needs an operator if it is not zero.
func alarming(n int, class string) cell {
	c := capped(n)
	if n > 0 {
		c.Class = class
	}
	return c
}

// ended is a count of a queue's dead letters, unknown or cancelled jobs. glance counts these
// together up to countLimit, so beyond that limit each count is a lower bound.
func ended(q ops.Queue, n int, class string) cell {
	c := alarming(n, class)
	if q.Dead+q.Unknown+q.Cancelled > countLimit && n <= countLimit {
		c.Text += " or more"
	}
	return c
}

func status(s ops.Status) cell { return cell{Status: s} }

func at(t time.Time) cell { return cell{At: t} }

// yes is a cell for a boolean.
func yes(is bool, text, not string) cell {
	if is {
		return plain(text)
	}
	return plain(not)
}
