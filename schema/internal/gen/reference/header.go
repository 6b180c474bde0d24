package main

import (
	"regexp"
	"strings"
)

// A block is a part of a header comment. Blank lines divide blocks.
type block struct {
	text  string   // a paragraph, or the label of a table without its colon
	items []string // of a list, each with its mark
	rows  []row    // of a table
	lines []string // of a figure
}

// A row is one entry of a labelled list:
//
//	Options:
//	  name  (values, default value) Text, which
//	        continues here.
//	  other (values, required) Text.
type row struct {
	names          []string
	values, preset string // in Options only
	text           string
}

var (
	label    = regexp.MustCompile(`^[A-Z][^.]*:$`)
	listItem = regexp.MustCompile(`^(?:-|\d+\.) `)
	rowBegin = regexp.MustCompile(`^  (\S.*?)(?:  +(.*))?$`)
)

// parse divides the lines of a comment into blocks.
func parse(lines []string) (all []block) {
	for _, group := range groups(lines) {
		switch {
		case label.MatchString(group[0]) && len(group) > 1 && rowBegin.MatchString(group[1]):
			all = append(all, block{text: strings.TrimSuffix(group[0], ":"), rows: rowsOf(group[1:])})
		case strings.HasPrefix(group[0], "  "):
			if last := len(all) - 1; last >= 0 && all[last].lines != nil {
				all[last].lines = append(append(all[last].lines, ""), group...)
			} else {
				all = append(all, block{lines: group})
			}
		case listItem.MatchString(group[0]):
			all = append(all, block{items: itemsOf(group)})
		default:
			all = append(all, block{text: strings.Join(group, " ")})
		}
	}
	return all
}

// groups divides lines at the blank ones.
func groups(lines []string) (all [][]string) {
	open := false
	for _, l := range lines {
		switch {
		case strings.TrimSpace(l) == "":
			open = false
		case open:
			all[len(all)-1] = append(all[len(all)-1], l)
		default:
			all, open = append(all, []string{l}), true
		}
	}
	return all
}

func itemsOf(lines []string) (items []string) {
	for _, l := range lines {
		if listItem.MatchString(l) {
			items = append(items, l)
		} else {
			items[len(items)-1] += " " + strings.TrimSpace(l)
		}
	}
	return items
}

func rowsOf(lines []string) (rows []row) {
	for _, l := range lines {
		if m := rowBegin.FindStringSubmatch(l); m != nil {
			rows = append(rows, row{names: strings.Split(m[1], ", "), text: m[2]})
			continue
		}
		last := &rows[len(rows)-1]
		last.text = strings.TrimSpace(last.text + " " + strings.TrimSpace(l))
	}
	for i := range rows {
		rows[i].cut()
	}
	return rows
}

// cut moves a leading "(values, default value)" or "(values, required)" from the text.
func (r *row) cut() {
	if !strings.HasPrefix(r.text, "(") {
		return
	}
	inside, rest := within(r.text[1:])
	r.text = strings.TrimSpace(rest)
	values, preset, given := strings.Cut(inside, ", default ")
	if before, after, required := strings.Cut(inside, ", required"); required {
		values, preset, given = before, "required"+after, true
	}
	if !given && values == "boolean" {
		preset = "false"
	}
	r.values, r.preset = values, preset
}

// table returns the rows of the tables with this label.
func table(blocks []block, label string) (rows []row) {
	for _, b := range blocks {
		if b.text == label {
			rows = append(rows, b.rows...)
		}
	}
	return rows
}
