// Package migratetest applies the files that `pawl migrate print` writes with the real tools they are written for, and
// compares the catalogue with that of [github.com/pawl-go/pawl/migrate.Up]. It is a module of its own so that nobody
// else needs those tools.
package migratetest
