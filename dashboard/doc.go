// Package dashboard serves web pages that show Pawl's state in one database and let operators
// change it. Use it to find out why a message or a job did not run, and to retry it. Mount it in
// your own server, behind your own login, or start it for yourself with `pawl dashboard`:
//
//	board, err := dashboard.New(dashboard.Config{
//		Pool:      pool,     // a login with the rights of pawl_reader
//		Operators: operator, // a login with the rights of pawl_operator; nil: read-only
//		Authorize: func(r *http.Request) (dashboard.User, error) {
//			session, err := sessions.Of(r)
//			return dashboard.User{Name: session.Email, MayChange: session.OnCall}, err
//		},
//	})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/pawl/", http.StripPrefix("/pawl", board))
//
// The pages show queues, jobs, dead letters, lanes, consumers, commands, steps, outbox events,
// schedules, workers, the findings of package doctor and the audit. The story page shows all facts
// about one key as a timeline. Every action is a verb of package ops: it needs a reason, writes an
// audit row, and first shows what it can cause.
//
//	browser ──▶ Authorize ──▶ page ──▶ ops, doctor ──▶ PostgreSQL (read only, 2 s a statement)
//	                      └─▶ action ─▶ ops.By{user, reason} ──▶ PostgreSQL (as pawl_operator)
//
// The pages work without JavaScript. They load nothing from other hosts, and their
// Content-Security-Policy allows no inline code.
package dashboard
