// Package lab is the crash lab of pawl demo --watch. It is a page with buttons that kill, freeze
// and disconnect real worker processes, and it shows doubled and lost orders. Besides Pawl's
// consumers it runs others that record handled messages in their own table, as people often write
// them. Both get the same orders and the same faults.
//
// The parts are real: a private PostgreSQL, a simulated SQS over HTTP in this process, the SDK's
// client, processes and signals. A proxy before the database cuts the response to a COMMIT.
package lab
