package sqstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are a queue's validated attributes. Source: CreateQueue and SetQueueAttributes.
type settings struct {
	given map[string]string // as set, for GetQueueAttributes

	visibility, delay, wait, retention time.Duration
	maxSize                            int
	redrive                            redrivePolicy

	fifo          bool
	contentBased  bool // the body's hash replaces a missing MessageDeduplicationId
	dedupPerGroup bool // DeduplicationScope
	perGroupQuota bool // FifoThroughputLimit is perMessageGroupId: no quota of calls
}

type redrivePolicy struct {
	DeadLetterTargetArn string
	MaxReceiveCount     int
}

// UnmarshalJSON takes maxReceiveCount as a number or as text, because clients send both.
func (p *redrivePolicy) UnmarshalJSON(text []byte) error {
	var raw struct {
		DeadLetterTargetArn string          `json:"deadLetterTargetArn"`
		MaxReceiveCount     json.RawMessage `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	p.DeadLetterTargetArn, p.MaxReceiveCount = raw.DeadLetterTargetArn, 10
	if len(raw.MaxReceiveCount) == 0 {
		return nil
	}
	count, err := strconv.Atoi(strings.Trim(string(raw.MaxReceiveCount), `"`))
	p.MaxReceiveCount = count
	return err
}

// withoutEffect are attributes that are stored and read back without effect.
var withoutEffect = []string{"Policy", "RedriveAllowPolicy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds",
	"SqsManagedSseEnabled"}

func defaultSettings() settings {
	return settings{visibility: defaultVisibility, retention: defaultRetention, maxSize: maxMessageSize,
		given: map[string]string{}}
}

// flags are the attributes of FIFO queues with two values, the default first.
var flags = map[string]struct {
	off, on string
	of      func(*settings) *bool
}{
	"FifoQueue":                 {"false", "true", func(s *settings) *bool { return &s.fifo }},
	"ContentBasedDeduplication": {"false", "true", func(s *settings) *bool { return &s.contentBased }},
	"DeduplicationScope":        {"queue", "messageGroup", func(s *settings) *bool { return &s.dedupPerGroup }},
	"FifoThroughputLimit":       {"perQueue", "perMessageGroupId", func(s *settings) *bool { return &s.perGroupQuota }},
}

// with returns the settings changed by attributes. An empty value unsets one. find looks up a queue
// by ARN.
func (s settings) with(attributes map[string]string, find func(arn string) *queue) (settings, *Error) {
	given := maps.Clone(s.given)
	maps.Copy(given, attributes)
	maps.DeleteFunc(given, func(_, value string) bool { return value == "" })
	next := defaultSettings()
	next.given = given
	for name, value := range given {
		if failed := next.apply(name, value, find); failed != nil {
			return s, failed
		}
	}
	return next, next.agree(find)
}

// agree checks rules that involve several attributes.
func (s settings) agree(find func(arn string) *queue) *Error {
	for name := range flags {
		if _, set := s.given[name]; set && !s.fifo {
			return failure("InvalidAttributeName", "", "Unknown Attribute %s.", name)
		}
	}
	if s.perGroupQuota && !s.dedupPerGroup {
		return badAttribute("FifoThroughputLimit")
	}
	if target := find(s.redrive.DeadLetterTargetArn); target != nil && (target.fifo != nil) != s.fifo {
		return invalidParameter(s.given["RedrivePolicy"], "RedrivePolicy", "Dead-letter queue must be same type of queue as the source.")
	}
	return nil
}

func (s *settings) apply(name, value string, find func(arn string) *queue) *Error {
	switch name {
	case "VisibilityTimeout":
		return seconds(name, value, 0, maxVisibility, &s.visibility)
	case "DelaySeconds":
		return seconds(name, value, 0, maxDelay, &s.delay)
	case "ReceiveMessageWaitTimeSeconds":
		return seconds(name, value, 0, maxWait, &s.wait)
	case "MessageRetentionPeriod":
		return seconds(name, value, minRetention, maxRetention, &s.retention)
	case "MaximumMessageSize":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1024 || n > maxMessageSize {
			return badAttribute(name)
		}
		s.maxSize = n
		return nil
	case "RedrivePolicy":
		return s.applyRedrive(value, find)
	}
	if flag, ok := flags[name]; ok {
		if value != flag.off && value != flag.on {
			return badAttribute(name)
		}
		*flag.of(s) = value == flag.on
		return nil
	}
	if slices.Contains(withoutEffect, name) {
		return nil
	}
	return failure("InvalidAttributeName", "", "Unknown Attribute %s.", name)
}

func (s *settings) applyRedrive(value string, find func(arn string) *queue) *Error {
	var policy redrivePolicy
	err := json.Unmarshal([]byte(value), &policy)
	switch {
	case err != nil || policy.DeadLetterTargetArn == "":
		return invalidParameter(value, "RedrivePolicy", "Redrive policy is not a valid JSON map.")
	case policy.MaxReceiveCount < 1 || policy.MaxReceiveCount > maxRedrive:
		return invalidParameter(value, "RedrivePolicy", fmt.Sprintf("Invalid value for maxReceiveCount: %d, "+
			"valid values are from 1 to %d both inclusive.", policy.MaxReceiveCount, maxRedrive))
	case find(policy.DeadLetterTargetArn) == nil:
		return invalidParameter(value, "RedrivePolicy", "Dead letter target does not exist.")
	}
	s.redrive = policy
	return nil
}

func seconds(name, value string, least, most time.Duration, into *time.Duration) *Error {
	n, err := strconv.Atoi(value)
	if err != nil || n < int(least/time.Second) || n > int(most/time.Second) {
		return badAttribute(name)
	}
	*into = time.Duration(n) * time.Second
	return nil
}

func badAttribute(name string) *Error {
	return failure("InvalidAttributeValue", "", "Invalid value for the parameter %s.", name)
}

// optional reports whether the name is of an attribute that a queue need not have.
func optional(name string) bool {
	_, flag := flags[name]
	return flag || name == "RedrivePolicy" || slices.Contains(withoutEffect, name)
}

// attributes follows GetQueueAttributes. The three counts are exact here and approximate at AWS.
func (q *queue) attributes(now time.Time) map[string]string {
	q.advance(now)
	q.dropOld(now)
	whole := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	all := map[string]string{
		"QueueArn":                              q.arn,
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(q.ready),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(q.inFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(q.delayed),
		"VisibilityTimeout":                     whole(q.set.visibility),
		"DelaySeconds":                          whole(q.set.delay),
		"ReceiveMessageWaitTimeSeconds":         whole(q.set.wait),
		"MessageRetentionPeriod":                whole(q.set.retention),
		"MaximumMessageSize":                    strconv.Itoa(q.set.maxSize),
		"SqsManagedSseEnabled":                  "true",
	}
	if q.fifo != nil {
		for name, flag := range flags {
			all[name] = flag.off
		}
	}
	maps.Copy(all, q.set.given)
	return all
}
