package sqstest

import "time"

// The limits of SQS. Sources: the API reference of each action, and "Amazon SQS message quotas" in
// the developer guide.
const (
	maxBatch          = 10                  // entries of a batch and messages of one receive
	maxMessageSize    = 1 << 20             // octets of a message or batch, with attributes
	maxAttributes     = 10                  // message attributes of one message
	maxAttributeName  = 256                 // octets of an attribute's name
	maxQueueName      = 80                  // characters of a queue's name
	maxEntryID        = 80                  // characters of a batch entry's id
	maxVisibility     = 12 * time.Hour      // from the receive; also for receipt handles
	maxDelay          = 15 * time.Minute    // DelaySeconds
	maxWait           = 20 * time.Second    // WaitTimeSeconds
	minRetention      = time.Minute         // MessageRetentionPeriod
	maxRetention      = 14 * 24 * time.Hour // MessageRetentionPeriod
	defaultRetention  = 4 * 24 * time.Hour  // MessageRetentionPeriod
	defaultVisibility = 30 * time.Second    // VisibilityTimeout
	defaultInFlight   = 120_000             // messages in flight of a standard queue
	maxRedrive        = 1000                // maxReceiveCount
	maxFIFOID         = 128                 // characters of group, deduplication and attempt ids
	dedupInterval     = 5 * time.Minute     // of MessageDeduplicationId and ReceiveRequestAttemptId
	maxMoveRate       = 500                 // MaxNumberOfMessagesPerSecond of a move task
	maxMoveTasks      = 10                  // move tasks listed
	purgeEvery        = time.Minute         // at most one PurgeQueue per queue in this time
	recreateAfter     = time.Minute         // the name of a deleted queue is reserved for this long
	maxListed         = 1000                // queues in one page of ListQueues
)

// The limits of this server.
const (
	maxRequest    = 8 << 20 // octets of a request: a full batch escaped as JSON, and a reserve
	maxQueryDepth = 8       // parts of a query parameter's name; the deepest valid one has 7
	reorderWindow = 128     // longest-ready messages among which a reordered receive picks
)
