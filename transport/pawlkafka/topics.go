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

// topicIDs returns the ids of topics, or an error if one is missing. It never creates a topic.
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

type topicError struct {
	topic string
	err   error
}

func (e *topicError) Error() string { return fmt.Sprintf("topic %q: %v", e.topic, e.err) }
func (e *topicError) Unwrap() error { return e.err }

// clockSlack covers late retention checks and producers' clocks (message.timestamp.after.max.ms).
const clockSlack = time.Hour

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

// keptFor returns how long a topic with these settings may keep a record; 0 means unknown.
func keptFor(settings map[string]string) time.Duration {
	retention, known := millis(settings["retention.ms"])
	segment, segmentKnown := millis(settings["segment.ms"])
	switch {
	case strings.Contains(settings["cleanup.policy"], "compact"), known && retention < 0:
		return pawl.Forever
	case !known || !segmentKnown:
		return 0 // unknown
	}
	if kept := retention + segment + clockSlack; kept > 0 {
		return kept
	}
	return pawl.Forever // the sum overflows
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
