// Package schema describes the rows for ent.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is a row of the table recipe_order.
type Order struct{ ent.Schema }

// Fields of an Order.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.Int64("cents")}
}

// Annotations of an Order.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Table("recipe_order")}
}
