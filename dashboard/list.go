package dashboard

import (
	"context"
	"slices"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// filter adds the form above a table. It shows the values that were asked for.
func (v *view) filter(page string, fields ...field) {
	for i, f := range fields {
		fields[i].Value = v.param(f.Name)
	}
	v.add(filter{v.Link.To(page), fields})
}

// statusField is a choice of statuses.
func statusField(all []ops.Status) field {
	f := field{Name: "status", Label: "status"}
	for _, s := range all {
		f.Options = append(f.Options, string(s))
	}
	return f
}

// only is a field that narrows a list to some rows.
func only(name, label string) field { return field{Name: name, Label: label, Options: []string{"yes"}} }

// statuses are the statuses that were asked for.
func (v *view) statuses() []ops.Status {
	if status := v.param("status"); status != "" {
		return []ops.Status{ops.Status(status)}
	}
	return nil
}

// list adds a page of rows to a table, and the table to the view.
func list[T any](v *view, t table, read func(context.Context, pawl.DB) (ops.Page[T], error), row func(T) []cell) error {
	found, err := see(v, read)
	if err != nil {
		return err
	}
	if v.asked() {
		t.Empty = noMatch
	}
	for _, one := range found.Rows {
		t.Rows = append(t.Rows, row(one))
	}
	if found.Next != "" {
		t.Next = v.with("after", found.Next)
	}
	v.add(t)
	return nil
}

// asked reports whether the address narrows a list.
func (v *view) asked() bool {
	for name, values := range v.given {
		if name != "charts" && name != "name" && slices.ContainsFunc(values, func(value string) bool { return value != "" }) {
			return true
		}
	}
	return false
}

// with returns the address of this page with another value of one parameter.
func (v *view) with(name, value string) string {
	values := v.request.URL.Query()
	values.Set(name, value)
	return "?" + values.Encode()
}

// glanced fills a page with what glance shows.
func glanced(fill func(*view, ops.Overview) error) func(*view) error {
	return func(v *view) error {
		o, err := see(v, glance)
		if err != nil {
			return err
		}
		v.ReadAt = o.ReadAt
		return fill(v, o)
	}
}
