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

// A Source is one member of a consumer group. Its methods may be called from many goroutines. It joins the group at the first Receive, and
// leaves it in Finish, which ends its client. From the first Receive on it has two goroutines of its own beside those of the client.
type Source struct {
	client *kgo.Client
	admin  *kadm.Client
	group  string
	topics []string
	config Config
	base   context.Context // of Open, without its end: hooks may come with it
	due    func(p *partition, final bool) (kgo.EpochOffset, commitment, bool)

	revokeWait             time.Duration // how long a revoke waits for what has begun
	horizon                adapter.Horizon
	counters               counters
	connects, commitErrors reporter

	// Locks are taken in this order.
	pumpMu   sync.Mutex // a poll of the client and what it puts into the windows are one step for the callbacks of the group
	commitMu sync.Mutex // one commit at a time, from the choice of the offsets to the broker's answer
	mu       sync.Mutex // all below

	ids                    map[string]topicID
	renewed                map[string]time.Time // when the client was told that a topic was made anew
	parts                  map[topicPartition]*partition
	order                  []*partition            // of parts, the next to hand out first
	restart                map[topicPartition]bool // assigned, and their commit is of an earlier topic of that name
	troubled, troubledLast time.Time               // since when fetches or joins fail with errors that pass, and when one did last
	errs                   []error                 // of fetches, for the next Receive
	octets                 int                     // unsettled, of all partitions
	crowded                bool                    // too many: nothing is fetched
	started                bool                    // the goroutines run
	stopped                bool                    // Receive has seen a context that had ended
	finishing              bool
	changed                chan struct{} // closed and made anew when something may be received or has been settled

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

// Open makes a client of opts, which say how the cluster is reached ([kgo.SeedBrokers], [kgo.SASL],
// [kgo.DialTLSConfig]) and may set how the group is kept: [kgo.SessionTimeout],
// [kgo.HeartbeatInterval], [kgo.RebalanceTimeout], [kgo.InstanceID], [kgo.FetchMaxBytes] and so on.
// It checks that the topics exist; none is ever created. The error says in one line what to do if
// they do not, or if no broker answers.
//
// The source sets what its promises depend on: no automatic commits, only committed records of
// transactions, cooperative-sticky assignment, the callbacks of the group. Options that would break
// them are refused: a group, topics, callbacks, automatic commits, a transactional id, topics that
// are created on the way, [kgo.BlockRebalanceOnPoll], a reset of lost offsets to the end.
//
// Set [kgo.RebalanceTimeout] above the Timeout of the handler and 10 s more; the default of 60 s
// fits the default Timeout of 30 s. With an InstanceID a process that ends stays a member until its
// session ends, which spares a restart the rebalance; its partitions wait meanwhile.
// [kgo.ConsumeStartOffset] says where a group begins that has never committed: by default with the
// first record. If it is another place, each partition without a commit reports what it skips
// (event error, kafka.log). A group that begins at the end also skips what is in new partitions
// before it has noticed them.
func Open(ctx context.Context, opts []kgo.Opt, group string, topics []string, cfg Config) (*Source, error) {
	const op = "kafka.open"
	cfg, err := cfg.filled()
	switch {
	case err != nil:
		return nil, err
	case group == "":
		return nil, adapter.BadArgument(op, "the group has no name")
	case len(topics) == 0 || slices.Contains(topics, ""):
		return nil, adapter.BadArgument(op, "the topics are %q: name at least one", topics)
	}
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	s := &Source{base: context.WithoutCancel(ctx), due: (*partition).due, group: group, topics: topics, config: cfg, ids: map[string]topicID{}, renewed: map[string]time.Time{}, parts: map[topicPartition]*partition{},
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

// begin asks what must be known before the first record.
func (s *Source) begin(ctx context.Context) error {
	rebalance := s.client.OptValue(kgo.RebalanceTimeout).(time.Duration)
	s.revokeWait = rebalance - revokeSlack
	if s.revokeWait < revokeSlack {
		return adapter.BadArgument("kafka.open", "the RebalanceTimeout is %v: set it above the Timeout of the handler and 10s more", rebalance)
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
	_ = s.horizon.Learn(ctx) // if the user may not ask, the horizon is not known
	return nil
}

// Broker returns kafka and the names of the topics, for traces.
func (s *Source) Broker() (system, destination string) { return "kafka", strings.Join(s.topics, ",") }

// Info says for how long a record may come again without being sent again: for as long as its topic keeps it, retention.ms and
// segment.ms and an hour more, as producers' clocks may be ahead; of several topics the longest. A topic that is compacted, or keeps
// records for ever, has the horizon [pawl.Forever]. A group whose commits were forgotten, for it was empty for
// offsets.retention.minutes (7 days), begins anew with the first record that is left.
//
// Open asks the broker for it, and Info asks again if the answer is older than five minutes, as settings change under a running consumer.
// That call takes ten seconds at most; if it fails, the last answer holds, and the next call asks again after a minute.
func (s *Source) Info() pawl.SourceInfo {
	return pawl.SourceInfo{RedeliveryHorizon: s.horizon.Get(), ReceiveBatch: receiveBatch, AckBatch: ackBatch, Cumulative: true}
}

// StillHeld reports whether the partition of a delivery is still this member's, and notes that work on the delivery begins: until Ack or Release
// a revoke waits for it, 5 s less than [kgo.RebalanceTimeout] at most.
func (s *Source) StillHeld(d pawl.Delivery) bool {
	at, ours := d.Handle.(*place)
	if !ours || at.of.source != s {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !at.of.gone && !at.of.leaving && !s.finishing && at.of.begin(at)
}

var errFinished = errors.New("the source is finished")

// Finish ends the source: it commits what is settled, leaves the group, so that others have its partitions at once, and closes the client.
// What is not settled comes again at the next owner. A consumer calls it last. Ack and Release after it do nothing and return an error.
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
	failed := s.commit(ctx, "kafka.finish", everyPartition, true)
	s.mu.Lock()
	for _, p := range s.order {
		s.forget(p)
	}
	s.mu.Unlock()
	if err := s.leave(ctx); failed == nil {
		failed = err
	}
	return wrap("kafka.finish", s.group, failed)
}

// leave leaves the group and closes the client, which goes on in the background if ctx ends before.
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

// wake ends the waiting of Receive and of revokes: something has changed. Call it under mu.
func (s *Source) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget ends a partition. Call it under mu.
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

func (s *Source) emit(ctx context.Context, e pawl.Event) {
	e.Scope = s.group
	s.config.Hooks.Emit(context.WithoutCancel(ctx), e)
}

// tell emits an event that no call of the consumer has caused.
func (s *Source) tell(e pawl.Event) { s.emit(s.base, e) }
