package outbox

import (
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// The headers of a message: the attributes of CloudEvents 1.0 as its HTTP binding names them
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md),
// and W3C Trace Context.
const (
	ceID          = "ce-id"
	ceSource      = "ce-source"
	ceSpecVersion = "ce-specversion"
	ceType        = "ce-type"
	ceTime        = "ce-time"
	ceSubject     = "ce-subject"
	contentType   = "content-type"
	traceParent   = "traceparent"
	traceState    = "tracestate"

	aggregateType = "pawl-aggregate-type"
	aggregateID   = "pawl-aggregate-id"
)

// messageOf converts a job to its event. It returns false for a job that Append did not create.
func messageOf(j job.Job, source string) (pawl.Message, bool) {
	headers := make(map[string]string, len(j.Headers)+6)
	for name, value := range j.Headers {
		if text, ok := value.(string); ok {
			headers[name] = text
		}
	}
	m := pawl.Message{
		ID: headers[ceID], Type: headers[ceType], AggregateType: headers[aggregateType], AggregateID: headers[aggregateID],
		Group: j.Lane, Position: j.Position, Time: j.CreatedAt, Payload: j.Payload, Headers: headers, Attempt: j.Attempt,
	}
	delete(headers, aggregateType)
	delete(headers, aggregateID)
	if given, err := time.Parse(time.RFC3339Nano, headers[ceTime]); err == nil {
		m.Time = given
	} else {
		headers[ceTime] = m.Time.UTC().Format(time.RFC3339Nano)
	}
	if headers[ceSource] == "" {
		headers[ceSource] = source
	}
	if m.AggregateID != "" && headers[ceSubject] == "" {
		headers[ceSubject] = m.AggregateType + "/" + m.AggregateID
	}
	headers[ceSpecVersion] = "1.0"
	headers[pawl.HeaderEventID] = m.ID
	return m, m.ID != "" && m.Type != ""
}
