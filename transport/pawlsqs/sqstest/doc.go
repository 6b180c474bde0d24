// Package sqstest is an Amazon SQS that lives inside your process: for tests and demos, never for production.
//
// It speaks the JSON protocol of today's SDKs, and the query protocol (forms and XML) of older ones: botocore before 1.31.81, boto 2,
// AWS SDK for Java before 2.21.19. It uses nothing but the standard library, and is reached in two ways:
// as an [http.Handler] on loopback ([Server.Start]), or with no socket at all, as the SDK's HTTP client
// ([Server.Do]). The second way works inside testing/synctest, where twelve hours of visibility take a millisecond.
//
// A message is always in one of four places:
//
//	SendMessage ──DelaySeconds──▶ delayed
//	     │                           │ delay over
//	     ▼                           ▼
//	   ready ◀────────────────────────
//	   │   ▲
//	   │   │ visibility over, or changed to 0
//	   ▼   │
//	in flight ──DeleteMessage──▶ gone
//
//	ready, older than the retention period ─────────▶ gone
//	ready, received maxReceiveCount times already ──▶ ready in the dead-letter queue, same id and body
//
// In a FIFO queue the ready messages stand in their groups, and of a group whose messages are in flight none is handed out.
// Sends with a known MessageDeduplicationId are answered as if they had happened. A move task sends dead letters back, as new
// messages.
//
// Each move follows the API reference named beside the code. Where AWS documents nothing, behaviour reported against
// real queues was followed. Nothing here was compared with a real AWS account: passing against this package is no
// proof of passing against AWS. The command in conformance tries the promises on any endpoint; docs/reference/sqs.md lists them.
//
// What the real service does rarely, [Faults] do on demand: second copies, lost deletes, receives whose answer never
// arrives, errors, polls that take messages for a client that has gone. [Chaos] makes them from a seed; the same
// seed decides the same way, whatever the goroutines do.
//
// Left out, and answered with UnsupportedOperation: permissions. Stored without effect: encryption settings, Policy and
// RedriveAllowPolicy. Signatures are not checked. A member that an action does not have is ignored, and so is an unknown name in
// AttributeNames of a receive (reported of the service in aws-sdk-js #1988); GetQueueAttributes refuses one.
package sqstest
