package pawlkafka

import (
	"context"
	"errors"
	"reflect"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
)

// options returns the source's options followed by the caller's. inForce checks that the caller's
// changed none of the source's. The client joins the group when Receive adds the topics.
func (s *Source) options(theirs []kgo.Opt) []kgo.Opt {
	ours := []kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// The first such error reveals a recreated topic; Receive does not return retriable ones.
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

// A rule checks one option of the client; instead is the hint if it is broken.
type rule struct {
	name    string
	kept    bool
	instead string
}

// refuse returns an error about the first broken rule.
func refuse(op string, rules []rule) error {
	for _, r := range rules {
		if !r.kept {
			return &pawl.Error{Op: op, Code: pawl.CodeArgumentInvalid, Err: errors.New("the option kgo." + r.name + " breaks a promise of Pawl"), Hint: r.instead}
		}
	}
	return nil
}

// commonRules apply to a source and to a sink.
func commonRules(c *kgo.Client) []rule {
	return []rule{
		{"AllowAutoTopicCreation", !isSet(c, kgo.AllowAutoTopicCreation), "leave it out, and create the topics with their partitions and retention"},
		{"TransactionalID", !isSet(c, kgo.TransactionalID), "leave it out: an effect and its key commit in PostgreSQL"},
	}
}

// inForce refuses options that override the source's own.
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

// losesNothing reports whether a group whose offset is no longer in the log continues at the first
// record that is left, or stops with an error. Either skips no record that still exists.
func losesNothing(reset kgo.Offset) bool {
	return reset == kgo.NewOffset().AtStart() || reset == kgo.NoResetOffset().AtStart()
}

// readCommitted is [kgo.ReadCommitted] as the client stores it.
const readCommitted = int8(1)

// hears reports whether a callback of the client is the source's. The client wraps callbacks, so
// hears calls it with a context that only the source's callbacks recognise.
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

// heard marks a probe by hears, and reports whether this call is one.
func heard(ctx context.Context) bool {
	mark, asked := ctx.Value(hearing{}).(*bool)
	if asked {
		*mark = true
	}
	return asked
}

func sameFunc(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// isSet reports whether an option differs from its zero value.
func isSet(c *kgo.Client, option any) bool {
	for _, v := range c.OptValues(option) {
		if v == nil {
			continue
		}
		switch r := reflect.ValueOf(v); r.Kind() {
		case reflect.Slice, reflect.Map:
			if r.Len() > 0 {
				return true
			}
		default:
			if !r.IsZero() {
				return true
			}
		}
	}
	return false
}
