// Package dashboard serves web pages that show Pawl's state in one database and let operators
// change it.
//
// The pages show queues, jobs, dead letters, lanes, consumers, commands, steps, outbox events,
// schedules, workers, the findings of package doctor and the audit. The story page shows all facts
// about one key as a timeline. Every action is a verb of package ops: it needs a reason, writes an
// audit row, and first shows what it can cause.
//
//	browser ──▶ Authorize ──▶ page ──▶ ops, doctor ──▶ PostgreSQL (read only, 2 s at most)
//	                      └─▶ action ─▶ ops.By{user, reason} ──▶ PostgreSQL (as pawl_operator)
//
// Mount it in your own server, behind your own login:
//
//	board, err := dashboard.New(dashboard.Config{
//		Pool:      pool,     // a login with the rights of pawl_reader
//		Operators: operator, // a login with the rights of pawl_operator; nil: read-only
//		Authorize: func(r *http.Request) (dashboard.User, error) {
//			session, err := sessions.Of(r)
//			return dashboard.User{Name: session.Email, MayChange: session.OnCall}, err
//		},
//	})
//	mux.Handle("/pawl/", http.StripPrefix("/pawl", board))
//
// Or start it for yourself with `pawl dashboard`.
//
// The pages work without JavaScript. They load nothing from other hosts, and their
// Content-Security-Policy allows no inline code.
package dashboard
