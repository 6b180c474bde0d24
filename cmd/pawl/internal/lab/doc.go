// Package lab is the crash lab of pawl demo --watch. It is a page with buttons that kill, freeze
// and disconnect real worker processes, and it shows doubled and lost orders. Beside Pawl's
// consumers run workers by hand, in one of the ways of ways.go. Both get the same orders and the
// same faults.
//
// The parts are real: a private PostgreSQL, a simulated SQS over HTTP in this process, the SDK's
// client, processes and signals. A proxy before the database cuts the response to a COMMIT.
package lab
