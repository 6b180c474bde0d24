// Package recipes writes rows with GORM, ent, bun, sqlx and sqlc in transactions that Pawl hands out, and enqueues jobs in transactions of
// theirs. Each library gets the *sql.Tx of a handler: see docs/guides/database-sql.md.
package recipes
