// Package lab is the crash lab of pawl demo --watch: a page on which a sceptic kills, freezes and cuts real worker processes, and watches what is doubled
// or lost. Beside the consumers of Pawl run others that remember what they have handled in a table of their own, as people write them. Both get the
// same orders and the same faults.
//
// All of it is real: a private PostgreSQL, an SQS over HTTP in this process, the SDK's client, processes, signals, and a proxy before the database that cuts the reply
// to a COMMIT.
package lab
