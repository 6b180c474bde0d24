package sqstest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

const namespace = "http://queue.amazonaws.com/doc/2012-11-05/"

// elements holds the XML names of the members of results. The elements of a list or map stand
// beside each other, without a parent.
var elements = map[string]collection{
	"Attributes":        {"Attribute", "Name", "Value"},
	"MessageAttributes": {"MessageAttribute", "Name", "Value"},
	"Tags":              {"Tag", "Key", "Value"},
	"Messages":          {name: "Message"},
	"QueueUrls":         {name: "QueueUrl"},
	"queueUrls":         {name: "QueueUrl"},
	"Results":           {name: "ListMessageMoveTasksResultEntry"},
	"Failed":            {name: "BatchResultErrorEntry"},
}

func element(op, name string) (collection, bool) {
	if name == "Successful" {
		return collection{name: op + "ResultEntry"}, true
	}
	c, ok := elements[name]
	return c, ok
}

// resultXML converts a result to XML from its JSON, which has the member names.
func resultXML(op string, result any) (response, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return response{}, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var members map[string]any
	if err := decoder.Decode(&members); err != nil {
		return response{}, err
	}
	w := writer{op: op}
	w.begin(op + `Response xmlns="` + namespace + `"`)
	if _, none := result.(nothing); !none {
		w.begin(op + "Result")
		w.structure(members)
		w.end(op + "Result")
	}
	w.begin("ResponseMetadata")
	id := w.requestID()
	w.end("ResponseMetadata")
	w.end(op + "Response")
	return w.response(http.StatusOK, id), nil
}

// statuses holds the HTTP statuses other than 400 in the query protocol ("Errors" of each action).
var statuses = map[string]int{"OverLimit": http.StatusForbidden, "PurgeQueueInProgress": http.StatusForbidden, "ResourceNotFoundException": http.StatusNotFound}

// failedXML writes an error for clients of the query protocol ("Common errors" of the API
// reference).
func failedXML(e *Error) response {
	var w writer
	w.begin(`ErrorResponse xmlns="` + namespace + `"`)
	w.begin("Error")
	w.text("Type", e.blame())
	w.text("Code", e.code())
	w.text("Message", e.Message)
	w.text("Detail", "")
	w.end("Error")
	id := w.requestID()
	w.end("ErrorResponse")
	status, special := statuses[e.Shape]
	if !special || e.Status != 0 {
		status = e.status()
	}
	return w.response(status, id)
}

// A writer writes XML elements. The namespace is the only attribute.
type writer struct {
	op string
	bytes.Buffer
}

func (w *writer) begin(name string) { w.WriteString("<" + name + ">") }
func (w *writer) end(name string)   { w.WriteString("</" + name + ">") }

func (w *writer) text(name, text string) {
	w.begin(name)
	// into a buffer, so it cannot fail; escapes line ends, which a parser would change
	_ = xml.EscapeText(w, []byte(text))
	w.end(name)
}

// requestID leaves room for the request's id and returns the offset.
func (w *writer) requestID() (at int) {
	w.begin("RequestId")
	at = len(xml.Header) + w.Len()
	w.end("RequestId")
	return at
}

func (w *writer) response(status, idAt int) response {
	return response{status: status, header: http.Header{"Content-Type": {"text/xml"}}, body: append([]byte(xml.Header), w.Bytes()...), idAt: idAt}
}

func (w *writer) structure(members map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		w.member(name, members[name])
	}
}

func (w *writer) member(name string, value any) {
	c, isCollection := element(w.op, name)
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			w.value(c.name, item)
		}
	case map[string]any:
		if !isCollection {
			w.value(name, value)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			w.begin(c.name)
			w.text(c.key, key)
			w.value(c.value, value[key])
			w.end(c.name)
		}
	default:
		w.value(name, value)
	}
}

func (w *writer) value(name string, value any) {
	switch value := value.(type) {
	case map[string]any:
		w.begin(name)
		w.structure(value)
		w.end(name)
	case string:
		w.text(name, value)
	case json.Number:
		w.text(name, value.String())
	case bool:
		w.text(name, strconv.FormatBool(value))
	}
}
