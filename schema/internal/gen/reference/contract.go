package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A contract is what schema/api and roles.sql say about the functions and views.
type contract struct {
	heads map[string][]string // the comment at the beginning of a file, by the file's name
	all   []*entry            // in the order of the files
	named map[string]*entry
}

// An entry is a function or a view of schema pawl_v1.
type entry struct {
	name    string
	view    bool
	header  []string // lines of the comment above it, without their marks
	args    []string // of a function, as written
	columns []string // of the result: name and type; of a view names only
	body    string   // what follows its name, without comments
	roles   []string // roles that roles.sql names for it
}

func (e *entry) public() bool { return !strings.HasPrefix(e.name, "_") }

var (
	created    = regexp.MustCompile(`(?m)^create or replace (function|view) pawl_v1\.(\w+)`)
	sqlComment = regexp.MustCompile(`(?m)--.*$`)
	ofView     = regexp.MustCompile(`^pawl_v1\.(\w+)`)
	literal    = regexp.MustCompile(`'[^']*'`)
	lastWord   = regexp.MustCompile(`\w+$`)
	returned   = regexp.MustCompile(`^\s*returns table \(`)
	revoked    = regexp.MustCompile(`(?s)\nrevoke execute on function\n(.*?)\nfrom pawl_app;`)
	granted    = regexp.MustCompile(`(?s)\ngrant execute on function\n(.*?)\nto pawl_reader;`)
	inRoles    = regexp.MustCompile(`pawl_v1\.(\w+)\(`)
)

// load reads the contract below schema, the path of that directory.
func load(schema string) (*contract, error) {
	files, err := filepath.Glob(filepath.Join(schema, "api", "*.sql"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%d files in schema/api: %v", len(files), err)
	}
	c := &contract{heads: map[string][]string{}, named: map[string]*entry{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := c.add(filepath.Base(file), string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	roles, err := os.ReadFile(filepath.Join(schema, "roles.sql"))
	if err != nil {
		return nil, err
	}
	return c, c.grant(string(roles))
}

// add adds the functions and views of a file.
func (c *contract) add(file, text string) error {
	head, _, _ := strings.Cut(text, "\n\n")
	c.heads[file] = comment(head)
	at := created.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		above := strings.Split(strings.TrimSuffix(text[:m[0]], "\n"), "\n")
		from := len(above)
		for from > 0 && strings.HasPrefix(above[from-1], "--") {
			from--
		}
		e := &entry{name: text[m[4]:m[5]], view: text[m[2]:m[3]] == "view", header: comment(strings.Join(above[from:], "\n"))}
		e.body = sqlComment.ReplaceAllString(text[m[5]:end], "")
		if err := e.sign(c); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		c.all, c.named[e.name] = append(c.all, e), e
	}
	return nil
}

// comment returns the lines of a comment without their marks.
func comment(text string) (lines []string) {
	for _, l := range strings.Split(text, "\n") {
		if rest, is := strings.CutPrefix(l, "--"); is {
			lines = append(lines, strings.TrimPrefix(rest, " "))
		}
	}
	return lines
}

// sign reads the arguments and the columns.
func (e *entry) sign(c *contract) error {
	if e.view {
		_, list, _ := strings.Cut(e.body, "select ")
		list, rest, _ := strings.Cut(list, "\n  from ")
		if strings.HasSuffix(list, ".*") {
			other := ofView.FindStringSubmatch(rest)
			if other == nil || c.named[other[1]] == nil {
				return fmt.Errorf("* is not of a view above it")
			}
			e.columns = c.named[other[1]].columns
			return nil
		}
		for _, column := range parts(literal.ReplaceAllString(list, "''")) {
			e.columns = append(e.columns, lastWord.FindString(column))
		}
		return nil
	}
	args, rest := within(strings.TrimPrefix(e.body, "("))
	e.args = parts(args)
	if m := returned.FindString(rest); m != "" {
		columns, _ := within(rest[len(m):])
		e.columns = parts(columns)
	} else if e.public() {
		return fmt.Errorf("it returns no table")
	}
	return nil
}

// within returns the text up to the parenthesis that closes it, and the rest.
func within(text string) (inside, rest string) {
	depth := 1
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// parts splits a list at the commas outside of parentheses, and joins the words of each part by
// single spaces.
func parts(list string) (all []string) {
	depth, from := 0, 0
	for i, r := range list + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			if part := strings.Join(strings.Fields(list[from:i]), " "); part != "" {
				all = append(all, part)
			}
			from = i + 1
		}
	}
	return all
}

// grant reads from roles.sql which functions are for operators only and which for readers too.
func (c *contract) grant(roles string) error {
	for role, pattern := range map[string]*regexp.Regexp{"pawl_operator": revoked, "pawl_reader": granted} {
		list := pattern.FindStringSubmatch(roles)
		if list == nil {
			return fmt.Errorf("roles.sql has no list of functions for %s", role)
		}
		for _, m := range inRoles.FindAllStringSubmatch(list[1], -1) {
			e := c.named[m[1]]
			if e == nil {
				return fmt.Errorf("roles.sql names %s, which is not in schema/api", m[1])
			}
			e.roles = append(e.roles, role)
		}
	}
	return nil
}
