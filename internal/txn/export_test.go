package txn

// SavepointName is the name of the savepoint that handlers run behind.
var SavepointName = savepointName
