// Package txn runs the transaction that every effect of Pawl uses:
//
//	begin → claim → savepoint → user code → release → commit
//	                    └── error: roll back to the savepoint, record the failure, commit
//
// The claim and the record of the outcome always share a transaction, so no other worker can claim
// in between. The package also classifies a failed COMMIT: committed, not committed, or unknown.
package txn
