// Package flow moves deliveries from a source to one effect each. Its files, in order, are the pipeline:
//
//	1_receive  a batch from the source; the source keeps it invisible to others from here on
//	2_claim    the inbox row, first statement of the transaction; duplicates are answered at once
//	3_handle   your code, behind a savepoint of the same transaction
//	4_commit   effect and inbox row together; a lost reply is asked again, never guessed
//	5_ack      with a receipt, which only a commit (or a row already there) can yield
//
//	land       a handler error: back to the savepoint, a durable job takes the delivery over, commit, ack
//	landed     retries of landed deliveries, from the database, with back-off, then the dead letters
//	drain      stop: finish what runs, give back the rest, flush the acks
//
// A crash at any of these costs a redelivery or a retry, never a second effect. The broker is only a trigger: once a
// delivery has landed, the row is the retry ledger, so retries and dead letters look alike whatever the broker.
package flow
