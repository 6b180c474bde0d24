// Package sqstest is a simulator of Amazon SQS inside your process, for tests and demos. Do not use
// it in production. Make a server, give it to the SDK as its HTTP client, and create queues:
//
//	server := sqstest.New(sqstest.Options{})
//	client := sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"),
//		HTTPClient:  server,
//		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
//	_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
//
// It speaks the JSON protocol of current SDKs. It also speaks the query protocol (forms and XML) of
// older ones: botocore before 1.31.81, boto 2, AWS SDK for Java before 2.21.19. It uses only the
// standard library. You reach it as an [http.Handler] on loopback ([Server.Start]), or without a
// socket as the SDK's HTTP client ([Server.Do]). The second way works inside testing/synctest,
// where twelve hours of visibility take a millisecond.
//
// A message is always in one of four states:
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
//	ready, received maxReceiveCount times ──────────▶ ready in the dead-letter queue, same id
//
// In a FIFO queue the ready messages are in groups. While a message of a group is in flight, no
// other of that group is handed out. A send with a known MessageDeduplicationId gets the original
// response and stores nothing. A move task sends dead letters back as new messages.
//
// Each move follows the API reference named beside the code. Where AWS documents nothing, the
// simulator follows behaviour reported of real queues. It was not compared with a real AWS account,
// so passing against this package does not prove passing against AWS. The command in conformance
// checks these promises on any endpoint; docs/reference/sqs.md lists them.
//
// [Faults] produce what the real service does rarely: second copies, lost deletes, receives whose
// response is lost, errors, and polls that take messages for a client that has disconnected.
// [Chaos] makes faults from a seed. The same seed gives the same decisions, however goroutines are
// scheduled.
//
// Permissions are not implemented and return UnsupportedOperation. Encryption settings, Policy and
// RedriveAllowPolicy are stored without effect. Signatures are not checked. A member that an action
// does not have is ignored. So is an unknown name in AttributeNames of a receive (reported of the
// service in aws-sdk-js #1988); GetQueueAttributes refuses one.
package sqstest
