// Package demo demonstrates the promise. Real SQS messages are duplicated, reordered and resent,
// and worker processes are killed. Each order has one effect.
//
//	producer ──SDK──▶ SQS in this process ──SDK──▶ worker process 1..W ──▶ PostgreSQL
//	N orders, D×         duplicates, lost            consumer, Inline mode         orders, ledger, balances
//	                     deletes, reordering              ▲
//	                                                      │ SIGKILL, at random and at named points
//	                                                   killer
//	with --pipeline: the handler appends an event ── outbox ──▶ a second queue ──▶ a second consumer ──▶ shipments
//	with --payments: webhook ──HTTP──▶ executed ──▶ charge ──▶ mail ──▶ the rows and the event; bank and mail server lie
//
//	checker: what was sent ◀── compared ──▶ the business rows (shares no code with the consumer)
//
// With --lease it shows two letters instead: one whose worker is killed and one whose worker is
// frozen.
package demo
