// Package recipes uses GORM, ent, bun, sqlx and sqlc with Pawl. They write rows in Pawl's
// transactions, and jobs are enqueued in theirs. Each library gets the *sql.Tx of a handler: see
// docs/guides/database-sql.md.
package recipes
