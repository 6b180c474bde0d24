// Package migrate installs and checks Pawl's schema. Run `pawl migrate up` when you deploy, or call
// [Up] in your own deploy code:
//
//	conn, err := pgx.Connect(ctx, url) // as the owner of the schema, not through a pooler
//	if err != nil {
//		return err
//	}
//	defer conn.Close(ctx)
//	applied, err := migrate.Up(ctx, conn, nil)
//
// Migrations run only on request: by the command, by Up, or by another tool with the files that
// [Files] writes. A worker never migrates. It calls [Check] and exits if it does not support the
// schema.
//
// [Up] needs a direct connection, not a transaction-mode pooler. It waits for other migrators by
// polling a session lock with pg_try_advisory_lock. A blocking lock would deadlock with CREATE
// INDEX CONCURRENTLY (T73 in docs/reference/traps.md).
package migrate
