package pawlkafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pawl-go/pawl"
)

// topicIDs asks for topics, which must exist. None is created by asking.
func topicIDs(ctx context.Context, admin *kadm.Client, topics []string) (map[string]topicID, error) {
	details, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]topicID, len(topics))
	for _, topic := range topics {
		d, there := details[topic]
		if !there {
			return nil, fmt.Errorf("the broker does not answer for topic %q", topic)
		}
		if d.Err != nil {
			return nil, &topicError{topic, d.Err}
		}
		ids[topic] = topicID(d.ID)
	}
	return ids, nil
}

// A topicError is an error about one topic.
type topicError struct {
	topic string
	err   error
}

func (e *topicError) Error() string { return fmt.Sprintf("topic %q: %v", e.topic, e.err) }
func (e *topicError) Unwrap() error { return e.err }

// clockSlack is how far a producer's clock may be ahead (message.timestamp.after.max.ms), and how late
// Kafka may check retention.
const clockSlack = time.Hour

// askHorizon reads the settings of the topics.
func (s *Source) askHorizon(ctx context.Context) (longest time.Duration, err error) {
	all, err := s.admin.DescribeTopicConfigs(ctx, s.topics...)
	if err != nil {
		return 0, err
	}
	for _, one := range all {
		if one.Err != nil {
			return 0, &topicError{one.Name, one.Err}
		}
		settings := map[string]string{}
		for _, c := range one.Configs {
			settings[c.Key] = c.MaybeValue()
		}
		longest = max(longest, keptFor(settings))
	}
	return longest, nil
}

// keptFor is how long a topic with these settings may keep a record.
func keptFor(settings map[string]string) time.Duration {
	retention, known := millis(settings["retention.ms"])
	segment, segmentKnown := millis(settings["segment.ms"])
	switch {
	case strings.Contains(settings["cleanup.policy"], "compact"), known && retention < 0:
		return pawl.Forever
	case !known || !segmentKnown:
		return 0 // it does not say
	}
	if kept := retention + segment + clockSlack; kept > 0 {
		return kept
	}
	return pawl.Forever // longer than can be counted
}

func millis(text string) (time.Duration, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false
	}
	if n > int64(pawl.Forever/time.Millisecond) {
		return pawl.Forever, true
	}
	return time.Duration(n) * time.Millisecond, true
}
