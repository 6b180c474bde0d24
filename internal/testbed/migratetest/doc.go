// Package migratetest applies the output of `pawl migrate print` with the tools that it is written
// for, and compares the catalogue with that of [github.com/pawl-go/pawl/migrate.Up]. It is a
// separate module so that no other module needs those tools.
package migratetest
