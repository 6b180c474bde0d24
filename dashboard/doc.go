// Package dashboard serves web pages that show what Pawl does in one database, and lets operators change it.
//
// The pages show queues, jobs, dead letters, lanes, consumers, commands, steps, outbox events, schedules, workers, the findings of package
// doctor and the audit. The story page shows everything that is known of one key as a timeline. Every action is a verb of package ops: it
// needs a reason, writes an audit row, and says first what it can cause.
//
//	browser ──▶ Authorize ──▶ page ──▶ ops, doctor ──▶ PostgreSQL (read only, 2 s at most)
//	                      └─▶ action ─▶ ops.By{user, reason} ──▶ PostgreSQL (as pawl_operator)
//
// Mount it in your own server, behind your own login:
//
//	board, err := dashboard.New(dashboard.Config{
//		Pool:      pool,     // a login with the rights of pawl_reader
//		Operators: operator, // a login with the rights of pawl_operator; leave it out for a read-only dashboard
//		Authorize: func(r *http.Request) (dashboard.User, error) {
//			session, err := sessions.Of(r)
//			return dashboard.User{Name: session.Email, MayChange: session.OnCall}, err
//		},
//	})
//	mux.Handle("/pawl/", http.StripPrefix("/pawl", board))
//
// Or start it alone, for yourself: pawl dashboard.
//
// The pages work without JavaScript. They load nothing from other hosts, and their Content-Security-Policy allows no inline code.
package dashboard
