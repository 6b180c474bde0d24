package main

import (
	"regexp"
	"strings"
)

const width = 120 // columns of the page's text

// markdown returns a comment as Markdown. name is that of the function or view that it describes.
func (c *contract) markdown(name string, lines []string) string {
	var parts []string
	for i, b := range parse(lines) {
		text := b.text
		if i == 0 && name != "" {
			text = opening(name, text)
		}
		switch {
		case b.rows != nil:
			parts = append(parts, c.table(name, b))
		case b.items != nil:
			var items []string
			for _, item := range b.items {
				mark, _, _ := strings.Cut(item, " ")
				items = append(items, wrap(c.inline(name, item), strings.Repeat(" ", len(mark)+1))...)
			}
			parts = append(parts, strings.Join(items, "\n"))
		case b.lines != nil:
			parts = append(parts, "```\n"+strings.Join(b.lines, "\n")+"\n```")
		default:
			parts = append(parts, strings.Join(wrap(c.inline(name, text), ""), "\n"))
		}
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// opening cuts the name from the first sentence of a header: the heading has it.
func opening(name, text string) string {
	text = strings.TrimPrefix(text, name+" ")
	if same, is := strings.CutPrefix(text, "is "); is {
		return same
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// table returns a labelled list as a table. Other labels stay above their table.
func (c *contract) table(name string, b block) string {
	kind, rest, more := strings.Cut(b.text, " of ")
	first, above := strings.TrimSuffix(strings.ToLower(kind), "s"), ""
	if more {
		above = kind + " of " + c.inline(name, rest) + ":\n\n"
	}
	heads, filled := [4]string{first, "values", "default", "meaning"}, [4]bool{true, false, false, true}
	var cells [][4]string
	for _, r := range b.rows {
		var names []string
		for _, n := range r.names {
			if oneWord.MatchString(n) {
				n = "`" + n + "`"
			}
			names = append(names, n)
		}
		line := [4]string{strings.Join(names, ", "), c.inline(name, r.values), c.inline(name, r.preset), c.inline(name, r.text)}
		filled[1], filled[2] = filled[1] || line[1] != "", filled[2] || line[2] != ""
		cells = append(cells, line)
	}
	var lines []string
	for _, line := range append([][4]string{heads, {"---", "---", "---", "---"}}, cells...) {
		var shown []string
		for i, cell := range line {
			if filled[i] {
				shown = append(shown, cell)
			}
		}
		lines = append(lines, emptyCell.ReplaceAllString("| "+strings.Join(shown, " | ")+" |", "| "))
	}
	lines[1] = strings.ReplaceAll(lines[1], " ", "")
	return above + strings.Join(lines, "\n")
}

var (
	oneWord   = regexp.MustCompile(`^\w+$`)
	emptyCell = regexp.MustCompile(`\|  `)
)

const (
	markedPage = iota + 1
	markedJSON
	markedBefore // a value
	markedValue
	markedDotted
	markedKind // of a name
	markedName
	markedColumn
	markedWord
)

// marked matches what inline formats: a page, JSON, a quoted value, a dotted name, a view or
// function by its kind, a column, and a name with an underscore.
var marked = regexp.MustCompile(strings.Join([]string{
	`docs/([\w/.-]+\.md(?:#[\w-]+)?)`, `(\{[^}]*\})`, `(^|[\s(\[,;])'([^']*)'`, `\b((?:pawl|detail|ops)\.\w+)`,
	`\b(view|function) ([a-z]\w*)`, `\bcolumn ([a-z]\w*)`, `\b(detail\b|[a-z]\w*_\w+(?:\[\w\])?)`,
}, "|"))

// inline formats a text: names become links or code, values and JSON code, pages links. self is the
// name of the section, which is no link.
func (c *contract) inline(self, text string) string {
	return marked.ReplaceAllStringFunc(text, func(s string) string {
		m := marked.FindStringSubmatch(s)
		switch {
		case m[markedPage] != "":
			return pageLink(m[markedPage])
		case m[markedKind] != "" && !c.links(self, m[markedName]):
			return s
		case m[markedKind] != "":
			return m[markedKind] + " " + anchor(m[markedName])
		case m[markedColumn] != "":
			return "column `" + m[markedColumn] + "`"
		case c.links(self, m[markedWord]):
			return anchor(m[markedWord])
		case strings.HasSuffix(s, "''"):
			return m[markedBefore] + "`''`"
		}
		return m[markedBefore] + "`" + m[markedJSON] + m[markedValue] + m[markedDotted] + m[markedWord] + "`"
	})
}

// links reports whether a name has a section of its own.
func (c *contract) links(self, name string) bool {
	e := c.named[name]
	return e != nil && e.public() && name != self
}

func anchor(name string) string { return "[" + name + "](#" + name + ")" }

// decision matches the file of a decision, and its number.
var decision = regexp.MustCompile(`^decisions/(\d{4})-`)

// pageLink returns a link to a page below docs. Its text is the path, or the number of a decision.
func pageLink(path string) string {
	shown, _, _ := strings.Cut(path, "#")
	if m := decision.FindStringSubmatch(path); m != nil {
		shown = m[1]
	}
	return "[" + shown + "](../" + path + ")"
}

// unbroken matches what a line break would spoil: code, links, and what would begin a list.
var unbroken = regexp.MustCompile("`[^`]*`|\\[[^\\]]*\\]\\([^)]*\\)| (?:\\d+[.)]|[-+*#>])(?: |$)")

// wrap breaks a text at spaces, and indents all lines but the first.
func wrap(text, indent string) (lines []string) {
	const space = "\x00"
	kept := unbroken.ReplaceAllStringFunc(text, func(s string) string { return strings.ReplaceAll(s, " ", space) })
	for _, line := range fill("", strings.Split(kept, " "), " ", indent) {
		lines = append(lines, strings.ReplaceAll(line, space, " "))
	}
	return lines
}

// fill joins words to lines that begin with first and then with indent. Between the words is a mark
// and a space, or a line break.
func fill(first string, words []string, between, indent string) (lines []string) {
	line := first
	for i, word := range words {
		if i > 0 {
			line += strings.TrimSuffix(between, " ")
			if len([]rune(line+" "+word)) > width {
				lines, line = append(lines, line), indent
			} else {
				line += " "
			}
		}
		line += word
	}
	return append(lines, line)
}
