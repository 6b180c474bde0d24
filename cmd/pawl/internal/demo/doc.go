// Package demo demonstrates the promise. Real SQS messages are duplicated, reordered and resent,
// and worker processes are killed. Each order has one effect.
//
//	producer ──SDK──▶ SQS in this process ──SDK──▶ worker 1..W ──▶ PostgreSQL
//	N orders, D×      duplicates, lost             consumer        orders, ledger,
//	                  deletes, reordering              ▲           balances
//	                                                   │ SIGKILL, at random and at named points
//	                                                killer
//	--pipeline: the handler appends an event ── outbox ──▶ second queue ──▶ consumer ──▶ shipments
//	--payments: webhook ──HTTP──▶ stored ──▶ charge ──▶ mail ──▶ rows and event
//
//	checker: what was sent ◀── compared ──▶ the business rows (shares no code with the consumer)
//
// With --lease it shows two letters instead: one whose worker is killed and one whose worker is
// frozen.
package demo
