package main

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

//go:embed sql.md.tmpl
var template string

// directive is a line of the template: the name of a function or view, or of a file whose first
// comment stands there.
var directive = regexp.MustCompile(`(?m)^\{\{([\w.]+)\}\}$`)

// page returns the template with each directive replaced. Every public function and view must be
// there once.
func page(c *contract, template string) (string, error) {
	used, problem := map[string]int{}, ""
	text := directive.ReplaceAllStringFunc(template, func(d string) string {
		name := directive.FindStringSubmatch(d)[1]
		used[name]++
		if head, found := c.heads[name]; found {
			return strings.TrimSuffix(c.markdown("", head), "\n")
		}
		e := c.named[name]
		if e == nil || !e.public() {
			problem = fmt.Sprintf("the template names %s, which is not in schema/api", name)
			return d
		}
		return strings.TrimSuffix(c.section(e), "\n")
	})
	for _, e := range c.all {
		if e.public() && used[e.name] != 1 {
			problem = fmt.Sprintf("the template names %s %d times: give it one place", e.name, used[e.name])
		}
	}
	if problem != "" {
		return "", errors.New(problem)
	}
	return text, nil
}

// section returns the section of a function or view.
func (c *contract) section(e *entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n```\n%s\n```\n\n", e.name, e.signature())
	b.WriteString(c.markdown(e.name, e.header))
	for _, role := range e.roles {
		switch role {
		case "pawl_operator":
			b.WriteString("\nFor [role](#roles) `pawl_operator`.\n")
		case "pawl_reader":
			b.WriteString("\n[Role](#roles) `pawl_reader` may call it.\n")
		}
	}
	return b.String()
}

// signature returns the arguments and the columns, on one line if that is short.
func (e *entry) signature() string {
	call := e.name + "(" + strings.Join(e.args, ", ") + ")"
	if e.view {
		call = e.name
	}
	if one := call + " → " + strings.Join(e.columns, ", "); len([]rune(one)) <= width {
		return one
	}
	lines := []string{e.name}
	if !e.view {
		lines = fill(e.name+"(", e.args, ", ", "    ")
		lines[len(lines)-1] += ")"
	}
	return strings.Join(append(lines, fill("  → ", e.columns, ", ", "    ")...), "\n")
}
