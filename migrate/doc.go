// Package migrate installs and checks Pawl's schema.
//
// Migrations run only on request: by `pawl migrate up`, by [Up] in your own deploy code, or by
// another tool with the files that [Files] writes. A worker never migrates. It calls [Check] and
// exits if it does not support the schema.
//
// [Up] needs a direct connection, not a transaction-mode pooler. It waits for other migrators by
// polling a session lock with pg_try_advisory_lock. A blocking lock would deadlock with CREATE
// INDEX CONCURRENTLY (trap T73).
package migrate
