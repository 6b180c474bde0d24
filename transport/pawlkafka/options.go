package pawlkafka

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
)

// options returns the source's options followed by the caller's. The last one wins, so inForce sees
// an option of the caller that replaced one of the source. Topics are missing here because the
// client must join the group at the first Receive, which adds them.
func (s *Source) options(theirs []kgo.Opt) []kgo.Opt {
	ours := []kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// The client reports retriable errors too, because the first sign of a recreated topic is
		// one. Receive keeps them from its caller.
		kgo.KeepRetryableFetchErrors(),
		kgo.ConsumerGroup(s.group),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
		kgo.OnOffsetsFetched(s.onFetched),
		kgo.AdjustFetchOffsetsFn(s.onAdjust),
		kgo.WithHooks(&clientHooks{s}),
	}
	if s.config.ServerSideBalancer {
		ours = append(ours, kgo.ServerSideBalancer())
	}
	return append(ours, theirs...)
}

// A rule is the result of checking one option. If the option does not keep the source's promises,
// instead is the hint for the caller.
type rule struct {
	name    string
	kept    bool
	instead string
}

func refuse(op string, rules []rule) error {
	for _, r := range rules {
		if !r.kept {
			return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: errors.New("the option kgo." + r.name + " breaks a promise of Pawl"), Hint: r.instead}
		}
	}
	return nil
}

func commonRules(c *kgo.Client) []rule {
	return []rule{
		{"AllowAutoTopicCreation", !isSet(c, kgo.AllowAutoTopicCreation), "leave it out, and create the topics with their partitions and retention"},
		{"TransactionalID", !isSet(c, kgo.TransactionalID), "leave it out: an effect and its key commit in PostgreSQL"},
	}
}

// inForce returns an error if an option of the caller replaced one of the source, or would break a
// promise of Pawl. KeepRetryableFetchErrors and WithHooks need no rule: a caller cannot turn them
// off.
func (s *Source) inForce(op string) error {
	c := s.client
	const ours, database = "leave it out: the source needs it", "leave it out: offsets are committed once the database holds the outcome"
	balancers, _ := c.OptValue(kgo.Balancers).([]kgo.GroupBalancer)
	reset, _ := c.OptValue(kgo.ConsumeResetOffset).(kgo.Offset)
	fetched, _ := c.OptValue(kgo.OnOffsetsFetched).(func(context.Context, *kgo.Client, *kmsg.OffsetFetchResponse) error)
	adjust, _ := c.OptValue(kgo.AdjustFetchOffsetsFn).(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error))
	return refuse(op, append(commonRules(c),
		rule{"ConsumerGroup", c.OptValue(kgo.ConsumerGroup) == s.group, "pass the group to Open"},
		rule{"ConsumeTopics", !isSet(c, kgo.ConsumeTopics), "pass the topics to Open"},
		rule{"ConsumePartitions", !isSet(c, kgo.ConsumePartitions), "pass the topics to Open: the group assigns partitions"},
		rule{"ConsumeRegex", !isSet(c, kgo.ConsumeRegex), "pass the topics to Open by their names"},
		rule{"DisableAutoCommit", isSet(c, kgo.DisableAutoCommit), database},
		rule{"FetchIsolationLevel", c.OptValue(kgo.FetchIsolationLevel) == readCommitted, "leave it out: records of aborted transactions must not take effect"},
		rule{"KeepControlRecords", !isSet(c, kgo.KeepControlRecords), "leave it out: control records are not messages"},
		rule{"Balancers", len(balancers) == 1 && balancers[0].ProtocolName() == "cooperative-sticky", "leave it out: the source relies on cooperative-sticky assignment"},
		rule{"ServerSideBalancer", c.OptValue(kgo.ServerSideBalancer) == s.config.ServerSideBalancer, "set Config.ServerSideBalancer"},
		rule{"BlockRebalanceOnPoll", !isSet(c, kgo.BlockRebalanceOnPoll), "leave it out: one slow record would hold up the whole group"},
		rule{"OnPartitionsAssigned", s.hears(c.OptValue(kgo.OnPartitionsAssigned)), ours},
		rule{"OnPartitionsRevoked", s.hears(c.OptValue(kgo.OnPartitionsRevoked)), ours},
		rule{"OnPartitionsLost", s.hears(c.OptValue(kgo.OnPartitionsLost)), ours},
		rule{"OnOffsetsFetched", sameFunc(fetched, s.onFetched), ours},
		rule{"AdjustFetchOffsetsFn", sameFunc(adjust, s.onAdjust), ours},
		rule{"ConsumeResetOffset", losesNothing(reset), "leave it out: a reset to anywhere but the first record skips records; set where a new group starts with kgo.ConsumeStartOffset"},
	))
}

// losesNothing reports whether a reset skips no record that still exists. If the group's offset is
// no longer in the log, AtStart continues at the first record. NoResetOffset().AtStart() stops with
// an error; NoResetOffset() alone would begin a new group at the end.
func losesNothing(reset kgo.Offset) bool {
	return reset == kgo.NewOffset().AtStart() || reset == kgo.NoResetOffset().AtStart()
}

// readCommitted is [kgo.ReadCommitted] as the client stores it.
const readCommitted = int8(1)

// hears reports whether a callback of the client is the source's. The client wraps callbacks, so
// they cannot be compared. hears calls the callback, with no partitions, in a context that the
// source's own callbacks recognise. A callback of the caller is really called.
func (s *Source) hears(callback any) bool {
	call, ok := callback.(func(context.Context, *kgo.Client, map[string][]int32))
	if !ok {
		return false
	}
	var heard bool
	call(context.WithValue(context.Background(), hearing{}, &heard), s.client, nil)
	return heard
}

type hearing struct{}

// heard reports whether a callback is called by hears. If so, it tells hears that the callback is
// the source's.
func heard(ctx context.Context) bool {
	mark, asked := ctx.Value(hearing{}).(*bool)
	if asked {
		*mark = true
	}
	return asked
}

// sameFunc compares the code of two functions. Methods of two sources have the same code.
func sameFunc(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// isSet reports whether an option has a value that is not zero. An empty slice is zero.
func isSet(c *kgo.Client, option any) bool {
	return slices.ContainsFunc(c.OptValues(option), func(v any) bool {
		switch r := reflect.ValueOf(v); r.Kind() {
		case reflect.Invalid: // nil
			return false
		case reflect.Slice, reflect.Map:
			return r.Len() > 0
		default:
			return !r.IsZero()
		}
	})
}
