package sqstest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

type nothing struct{}

type createRequest struct {
	QueueName  string
	Attributes map[string]string
	Tags       map[string]string `json:"tags"`
}

type queueURLResult struct{ QueueUrl string }

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// createQueue is idempotent: the same name with the same attributes returns the same URL. Other
// attribute values are refused (CreateQueue).
func (s *Server) createQueue(r *request, in *createRequest) (any, *Error) {
	stem, isFIFO := strings.CutSuffix(in.QueueName, ".fifo")
	switch {
	case isFIFO != (in.Attributes["FifoQueue"] == "true"):
		return nil, invalidValue("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, " +
			"must end with .fifo suffix and be 1 to 80 in length")
	case !queueName.MatchString(stem) || len(in.QueueName) > maxQueueName:
		return nil, invalidValue("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if failed := checkTags(in.Tags); failed != nil {
		return nil, failed
	}
	set, failed := defaultSettings().with(in.Attributes, s.byARN)
	if failed != nil {
		return nil, failed
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[in.QueueName]; q != nil {
		if failed := q.sameAs(in.Attributes, now); failed != nil {
			return nil, failed
		}
	} else if at, ok := s.deleted[in.QueueName]; ok && now.Sub(at) < recreateAfter {
		return nil, failure("QueueDeletedRecently", legacy+"QueueDeletedRecently",
			"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	} else {
		q := newQueue(s, in.QueueName, set, now)
		maps.Copy(q.tags, in.Tags)
		s.queues[in.QueueName] = q
	}
	return queueURLResult{s.queueURL(r.base, in.QueueName)}, nil
}

func (q *queue) sameAs(attributes map[string]string, now time.Time) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	have := q.attributes(now)
	for name, value := range attributes {
		if have[name] != value {
			return failure("QueueNameExists", "QueueAlreadyExists",
				"A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return nil
}

func (s *Server) getQueueURL(r *request, in *struct{ QueueName, QueueOwnerAWSAccountId string }) (any, *Error) {
	owner := in.QueueOwnerAWSAccountId
	if s.named(in.QueueName) == nil || owner != "" && owner != s.account {
		return nil, noSuchQueue()
	}
	return queueURLResult{s.queueURL(r.base, in.QueueName)}, nil
}

type listRequest struct {
	QueueNamePrefix, NextToken string
	MaxResults                 *int
}

type listResult struct {
	QueueUrls []string
	NextToken string `json:",omitempty"`
}

func (s *Server) listQueues(r *request, in *listRequest) (any, *Error) {
	page := or(in.MaxResults, maxListed)
	if page < 1 || page > maxListed {
		return nil, invalidParameter(page, "MaxResults", "Must be between 1 and 1000, if provided.")
	}
	names := s.names(func(q *queue) bool {
		return strings.HasPrefix(q.name, in.QueueNamePrefix) && q.name > in.NextToken
	})
	var next string
	if len(names) > page {
		names = names[:page]
		next = names[page-1]
	}
	return listResult{QueueUrls: s.urls(r.base, names), NextToken: next}, nil
}

func (q *queue) listDeadLetterSources(r *request, _ *nothing) (any, *Error) {
	return struct {
		QueueUrls []string `json:"queueUrls"`
	}{q.server.urls(r.base, q.server.sourcesOf(q))}, nil
}

// sourcesOf names the queues whose dead-letter queue is target.
func (s *Server) sourcesOf(target *queue) []string {
	return s.names(func(q *queue) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.set.redrive.DeadLetterTargetArn == target.arn
	})
}

func (s *Server) names(keep func(*queue) bool) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if keep(s.queues[name]) {
			names = append(names, name)
		}
	}
	return names
}

func (s *Server) urls(base string, names []string) []string {
	urls := make([]string, 0, len(names))
	for _, name := range names {
		urls = append(urls, s.queueURL(base, name))
	}
	return urls
}

// deleteQueue removes the queue and its messages. The name stays reserved for a minute
// (DeleteQueue).
func (q *queue) deleteQueue(*request, *nothing) (any, *Error) {
	s := q.server
	s.mu.Lock()
	if s.queues[q.name] == q {
		delete(s.queues, q.name)
		s.deleted[q.name] = time.Now()
	}
	s.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deleted = true
	for _, m := range q.all {
		q.remove(m)
	}
	q.wakeAll()
	return nothing{}, nil
}

func (q *queue) getAttributes(_ *request, in *struct{ AttributeNames []string }) (any, *Error) {
	q.mu.Lock()
	all := q.attributes(time.Now())
	q.mu.Unlock()
	wanted := map[string]string{}
	for _, name := range in.AttributeNames {
		if name == "All" {
			wanted = all
			break
		}
		if value, has := all[name]; has {
			wanted[name] = value
		} else if !optional(name) {
			return nil, failure("InvalidAttributeName", "", "Unknown Attribute %s.", name)
		}
	}
	return struct{ Attributes map[string]string }{wanted}, nil
}

func (q *queue) setAttributes(_ *request, in *struct{ Attributes map[string]string }) (any, *Error) {
	q.mu.Lock()
	before := q.set
	q.mu.Unlock()
	// The check looks up other queues, so it runs without the lock. Of two concurrent writers the
	// later wins.
	after, failed := before.with(in.Attributes, q.server.byARN)
	if failed != nil {
		return nil, failed
	}
	if after.fifo != before.fifo { // "You can't change it for an existing queue" (CreateQueue)
		return nil, failure("InvalidAttributeName", "", "Unknown Attribute FifoQueue.")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set, q.modified = after, time.Now()
	return nothing{}, nil
}

func (q *queue) purgeQueue(*request, *nothing) (any, *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return nothing{}, q.purge(time.Now())
}
