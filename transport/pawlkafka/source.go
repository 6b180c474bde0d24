package pawlkafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/internal/adapter"
)

// A Source is one member of a consumer group. It is safe for concurrent use. The first Receive
// joins the group and starts two goroutines; Finish leaves the group and closes the client.
type Source struct {
	client *kgo.Client
	admin  *kadm.Client
	group  string
	topics []string
	config Config
	base   context.Context // Open's context without its cancellation, for values that hooks read
	due    func(p *partition, final bool) (kgo.EpochOffset, commitment, bool)

	revokeWait             time.Duration // how long a revoke waits for started work
	horizon                adapter.Horizon
	counters               counters
	report                 adapter.Reporter
	connects, commitErrors reporter

	// Acquire the locks in this order.
	pumpMu   sync.Mutex // makes a poll and its stow one step for group callbacks
	commitMu sync.Mutex // held from choosing the offsets to the response
	mu       sync.Mutex // guards the fields below

	ids                    map[string]topicID
	renewed                map[string]time.Time // when the client switched to a recreated topic
	parts                  map[topicPartition]*partition
	order                  []*partition            // the values of parts; the first is served next
	restart                map[topicPartition]bool // assigned, with the commit of an earlier topic
	troubled, troubledLast time.Time               // first and last of a run of retriable errors
	errs                   []error                 // fetch errors for the next Receives
	octets                 int                     // bytes of unsettled records in all partitions
	crowded                bool                    // octets reached its bound: fetch nothing
	started                bool                    // the goroutines run
	stopped                bool                    // Receive got a context that had ended
	finishing              bool
	changed                chan struct{} // closed and replaced at each change

	announced chan struct{} // the client has buffered records
	kick      chan struct{} // commit soon
	stop      context.CancelFunc
	running   sync.WaitGroup
}

var (
	_ pawl.Finisher  = (*Source)(nil)
	_ pawl.Revocable = (*Source)(nil)
	_ pawl.Broker    = (*Source)(nil)
)

// Open creates a client from opts and checks that the topics exist; it never creates one. If a
// topic is missing or no broker answers, the error has a one-line hint.
//
// Pass in opts how to reach the cluster: [kgo.SeedBrokers], [kgo.SASL], [kgo.DialTLSConfig]. You
// may also tune the group, with [kgo.SessionTimeout], [kgo.HeartbeatInterval],
// [kgo.RebalanceTimeout], [kgo.InstanceID], [kgo.FetchMaxBytes] and so on.
//
// The source itself sets manual commits, read-committed isolation, cooperative-sticky assignment
// and the group callbacks. Open refuses options that would break its promises: a group, topics,
// callbacks, automatic commits, a transactional id, automatic topic creation,
// [kgo.BlockRebalanceOnPoll], and a reset of lost offsets to the end.
//
// Set [kgo.RebalanceTimeout] at least 10 s above the handler's Timeout. The default of 60 s fits
// the default Timeout of 30 s. With an InstanceID, a process that exits stays a member until its
// session expires. A restart then causes no rebalance, but its partitions wait until it is back.
//
// [kgo.ConsumeStartOffset] sets where a group without commits starts; the default is the first
// record. If it is set elsewhere, each partition without a commit reports the skipped records
// (event error, kafka.log). A group that starts at the end also skips records that reach a new
// partition before the group notices that partition.
func Open(ctx context.Context, opts []kgo.Opt, group string, topics []string, cfg Config) (*Source, error) {
	const op = "kafka.open"
	cfg, err := cfg.filled()
	switch {
	case err != nil:
		return nil, err
	case group == "":
		return nil, adapter.BadArgument(op, "the name of the group is empty")
	case len(topics) == 0 || slices.Contains(topics, ""):
		return nil, adapter.BadArgument(op, "the topics are %q: name at least one", topics)
	}
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	s := &Source{base: context.WithoutCancel(ctx), due: (*partition).due, group: group, topics: topics, config: cfg, report: adapter.Reporter{Hooks: cfg.Hooks, Scope: group}, ids: map[string]topicID{}, renewed: map[string]time.Time{}, parts: map[topicPartition]*partition{},
		restart: map[topicPartition]bool{}, changed: make(chan struct{}), announced: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
	s.client, err = kgo.NewClient(s.options(opts)...)
	if err != nil {
		return nil, &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: err}
	}
	s.admin = kadm.NewClient(s.client)
	if err := s.inForce(op); err != nil {
		s.client.Close()
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		s.client.Close()
		return nil, wrap(op, strings.Join(topics, ", "), err)
	}
	return s, nil
}

// begin reads the topics' ids and retention before the first record is received.
func (s *Source) begin(ctx context.Context) error {
	rebalance := s.client.OptValue(kgo.RebalanceTimeout).(time.Duration)
	s.revokeWait = rebalance - revokeSlack
	if s.revokeWait < revokeSlack {
		return adapter.BadArgument("kafka.open", "the RebalanceTimeout is %v: set it at least 10s above the handler's Timeout", rebalance)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ids, err := topicIDs(ctx, s.admin, s.topics)
	if err != nil {
		return err
	}
	s.ids = ids
	s.horizon.Timeout, s.horizon.Ask = callTimeout, s.askHorizon
	s.horizon.Failed = func(err error) {
		const op = "kafka.horizon"
		s.tell(pawl.Event{Kind: pawl.EventError, Op: op, Err: wrap(op, strings.Join(s.topics, ", "), err)})
	}
	_ = s.horizon.Learn(ctx) // without permission, the horizon stays unknown
	return nil
}

// Broker returns "kafka" and the comma-separated topics, for traces.
func (s *Source) Broker() (system, destination string) { return "kafka", strings.Join(s.topics, ",") }

// Info returns the redelivery horizon and the batch sizes. The horizon is how long Kafka may keep a
// record: retention.ms + segment.ms + 1 hour, because producers' clocks may be ahead. With several
// topics, the longest counts. A topic that is compacted or keeps records forever has
// [pawl.Forever].
//
// After a group was empty for offsets.retention.minutes (7 days), Kafka forgets its commits. The
// group then starts again with the first record that is left.
//
// Open asks the broker for these settings. Info asks again if the answer is older than five
// minutes, because settings may change. That call takes at most ten seconds. If it fails, Info
// returns the last answer and asks again after a minute.
func (s *Source) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: s.horizon.Get(), ReceiveBatch: receiveBatch, AckBatch: ackBatch, Cumulative: true}
}

// StillHeld reports whether this member still owns the delivery's partition. It also marks the
// delivery as started. A revoke waits for started deliveries until Ack or Release, at most
// [kgo.RebalanceTimeout] minus 5 s.
func (s *Source) StillHeld(d pawl.Delivery) bool {
	at, ours := d.Handle.(*entry)
	if !ours || at.of.source != s {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !at.of.gone && !at.of.leaving && !s.finishing && at.of.begin(at)
}

var errFinished = errors.New("the source is finished")

// Finish commits settled records, leaves the group so that other members get its partitions at
// once, and closes the client. The next owner receives unsettled records again. Call it last, as a
// consumer does: later calls to Ack and Release do nothing and return an error.
func (s *Source) Finish(ctx context.Context) error {
	s.mu.Lock()
	if s.finishing {
		s.mu.Unlock()
		return &pawl.Error{Op: "kafka.finish", Err: errFinished}
	}
	s.finishing = true
	s.wake()
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.running.Wait()
	failed := s.commit(ctx, "kafka.finish", nil, true, func() {
		for _, p := range s.order {
			s.forget(p)
		}
	})
	if err := s.leave(ctx); failed == nil {
		failed = err
	}
	return wrap("kafka.finish", s.group, failed)
}

// leave leaves the group and closes the client, in the background if ctx ends first.
func (s *Source) leave(ctx context.Context) error {
	err := s.client.LeaveGroupContext(ctx)
	closed := make(chan struct{})
	go func() {
		s.client.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return err
}

// wake wakes waiting Receives and revokes. Call it under mu.
func (s *Source) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget removes a partition. Call it under mu.
func (s *Source) forget(p *partition) {
	if p.gone {
		return
	}
	p.gone = true
	s.octets -= p.octets
	if s.parts[p.topicPartition] == p {
		delete(s.parts, p.topicPartition)
	}
	s.order = slices.DeleteFunc(slices.Clone(s.order), func(other *partition) bool { return other == p })
	s.wake()
}

// tell emits an event that no call of the consumer caused.
func (s *Source) tell(e pawl.Event) { s.report.Emit(s.base, e) }
