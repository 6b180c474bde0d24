package sqstest

import "time"

// The limits of SQS. Sources: the API reference of each action, and "Amazon SQS message quotas" in the developer
// guide.
const (
	maxBatch          = 10                  // entries of a batch and messages of one receive
	maxMessageSize    = 1 << 20             // octets of one message, and of all messages of a batch, attributes included
	maxAttributes     = 10                  // message attributes of one message
	maxAttributeName  = 256                 // octets of an attribute's name
	maxQueueName      = 80                  // characters of a queue's name
	maxEntryID        = 80                  // characters of a batch entry's id
	maxVisibility     = 12 * time.Hour      // from the receive; also the life of a receipt handle
	maxDelay          = 15 * time.Minute    // DelaySeconds
	maxWait           = 20 * time.Second    // WaitTimeSeconds
	minRetention      = time.Minute         // MessageRetentionPeriod
	maxRetention      = 14 * 24 * time.Hour // MessageRetentionPeriod
	defaultRetention  = 4 * 24 * time.Hour  // MessageRetentionPeriod
	defaultVisibility = 30 * time.Second    // VisibilityTimeout
	defaultInFlight   = 120_000             // messages in flight in one standard queue, then OverLimit
	maxRedrive        = 1000                // maxReceiveCount
	maxFIFOID         = 128                 // characters of MessageGroupId, MessageDeduplicationId, ReceiveRequestAttemptId
	dedupInterval     = 5 * time.Minute     // of MessageDeduplicationId and ReceiveRequestAttemptId
	maxMoveRate       = 500                 // MaxNumberOfMessagesPerSecond of a move task
	maxMoveTasks      = 10                  // move tasks listed
	purgeEvery        = time.Minute         // one PurgeQueue a queue in this time
	recreateAfter     = time.Minute         // a deleted queue's name is taken for this long
	maxListed         = 1000                // queues in one page of ListQueues
)

// Our own limits.
const (
	maxRequest    = 8 << 20 // octets of a request: a full batch, escaped as JSON, with room to spare
	maxQueryDepth = 8       // parts of a parameter's name in the query protocol; the deepest that means something has 7
	reorderWindow = 128     // how far back in the queue a reordered receive may reach
)
