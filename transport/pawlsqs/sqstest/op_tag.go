package sqstest

import "maps"

// Tags follow TagQueue and "Amazon SQS cost allocation tags". They have no effect.

const (
	maxTags     = 50  // of one queue
	maxTagKey   = 128 // characters
	maxTagValue = 256 // characters
)

func checkTags(tags map[string]string) *Error {
	if len(tags) > maxTags {
		return invalidValue("Too many tags added for queue: %d, allowed are %d.", len(tags), maxTags)
	}
	for key, value := range tags {
		if n := len([]rune(key)); n < 1 || n > maxTagKey {
			return invalidValue("Tag keys must be between 1 and %d characters in length.", maxTagKey)
		}
		if len([]rune(value)) > maxTagValue {
			return invalidValue("Tag values must be between 0 and %d characters in length.", maxTagValue)
		}
	}
	return nil
}

func (q *queue) tagQueue(_ *request, in *struct{ Tags map[string]string }) (any, *Error) {
	if len(in.Tags) == 0 {
		return nil, missing("Tags")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	after := maps.Clone(q.tags)
	maps.Copy(after, in.Tags)
	if failed := checkTags(after); failed != nil {
		return nil, failed
	}
	q.tags = after
	return nothing{}, nil
}

func (q *queue) untagQueue(_ *request, in *struct{ TagKeys []string }) (any, *Error) {
	if len(in.TagKeys) == 0 {
		return nil, missing("TagKeys")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range in.TagKeys {
		delete(q.tags, key)
	}
	return nothing{}, nil
}

func (q *queue) listTags(*request, *nothing) (any, *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return struct {
		Tags map[string]string `json:",omitempty"`
	}{maps.Clone(q.tags)}, nil
}
