// Package migrate installs and checks Pawl's schema.
//
// Migrations run only when asked: by `pawl migrate up`, by [Up] from your own deploy code, or by another tool from the
// files [Files] writes. A worker never migrates; it calls [Check] and refuses a schema it does not understand.
//
// [Up] needs a direct connection, not a transaction-mode pooler: it waits for other migrators by polling a session
// lock (pg_try_advisory_lock; a blocking lock would deadlock with CREATE INDEX CONCURRENTLY, trap T73).
package migrate
