// Package txn runs the one shape of transaction that every effect of Pawl has:
//
//	begin → claim → savepoint → user code → release → commit
//	                    └── error: roll back to the savepoint, record the failure, commit
//
// The claim and the record of what became of it always share a transaction, so nobody can win in between. It also
// decides what a failed COMMIT means: yes, no, or unknown.
package txn
