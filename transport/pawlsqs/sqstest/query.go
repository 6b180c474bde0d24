package sqstest

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// inXML is the query protocol of older clients. Parameters are a form, the response is XML ("Making
// Query API requests for Amazon SQS using AWS query protocol" in the developer guide). Both
// protocols use the same member names. Lists and maps are numbered parameters:
//
//	AttributeName.1=All                                          AttributeNames    ["All"]
//	Attribute.1.Name=DelaySeconds&Attribute.1.Value=3            Attributes        {"DelaySeconds": "3"}
//	SendMessageBatchRequestEntry.1.Id=a                          Entries           [{"Id": "a"}]
//	AttributeName=                                               AttributeNames    []
//
// The last line is how the protocol sends an empty list; some clients use the list's JSON name for
// it. A form is converted to the body of the JSON protocol, and its result to XML, so operations
// handle one protocol only.
var inXML = protocol{read: readQuery, result: resultXML, failed: failedXML}

func isQuery(r *http.Request) bool {
	return r.Header.Get("X-Amz-Target") == "" &&
		(strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") || r.URL.Query().Has("Action"))
}

// A collection is a list or a map whose name differs between the protocols.
type collection struct {
	name       string // in JSON
	key, value string // names of the two parts of a map's element in a form; empty for a list
}

// collections are the collections of requests, by parameter name.
var collections = map[string]collection{
	"Attribute":                      {"Attributes", "Name", "Value"},
	"MessageAttribute":               {"MessageAttributes", "Name", "Value"},
	"MessageSystemAttribute":         {"MessageSystemAttributes", "Name", "Value"},
	"Tag":                            {"Tags", "Key", "Value"},
	"Tags":                           {"Tags", "Key", "Value"}, // used by some clients of TagQueue
	"AttributeName":                  {name: "AttributeNames"},
	"MessageAttributeName":           {name: "MessageAttributeNames"},
	"MessageSystemAttributeName":     {name: "MessageSystemAttributeNames"},
	"TagKey":                         {name: "TagKeys"},
	"SendMessageBatchRequestEntry":   {name: "Entries"},
	"DeleteMessageBatchRequestEntry": {name: "Entries"},
	"ChangeMessageVisibilityBatchRequestEntry": {name: "Entries"},
}

// byMember holds the collections by their JSON names.
var byMember = func() map[string]collection {
	all := map[string]collection{}
	for _, c := range collections {
		all[c.name] = c
	}
	return all
}()

func (c collection) none() any {
	if c.key == "" {
		return []any{}
	}
	return map[string]any{}
}

var numbers = map[string]bool{"DelaySeconds": true, "VisibilityTimeout": true, "WaitTimeSeconds": true, "MaxNumberOfMessages": true,
	"MaxResults": true, "MaxNumberOfMessagesPerSecond": true}

// readQuery takes the parameters from the URL and the body. A request to a queue's own URL need not
// name the queue.
func readQuery(r *http.Request) (op string, body []byte, failed *Error) {
	text, failed := readBody(r)
	if failed != nil {
		return "", nil, failed
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return "", nil, failure("MalformedQueryString", "", "The query string contains a syntax error: %v", err)
	}
	for name, values := range r.URL.Query() {
		form[name] = append(form[name], values...)
	}
	op = form.Get("Action")
	if op == "" {
		return "", nil, failure("MissingAction", "", "The request must contain the parameter Action.")
	}
	if path := strings.Trim(r.URL.Path, "/"); form.Get("QueueUrl") == "" && strings.Contains(path, "/") {
		form.Set("QueueUrl", baseURL(r)+"/"+path)
	}
	tree := node{}
	for name, values := range form {
		path := strings.Split(name, ".")
		if len(path) > maxQueryDepth || !utf8.ValidString(values[0]) {
			return "", nil, failure("MalformedQueryString", "", "The parameter %.100q has too long a name, or a value that is not UTF-8.", name)
		}
		tree.put(path, values[0])
	}
	members, failed := tree.structure()
	if failed != nil {
		return "", nil, failed
	}
	body, err = json.Marshal(members)
	if err != nil {
		return "", nil, failure("MalformedQueryString", "", "%v", err)
	}
	return op, body, nil
}

// A node is a part of parameter names: it maps the next parts to their nodes, and "" to the value.
type node map[string]any

func (n node) put(path []string, value string) {
	if len(path) == 0 {
		n[""] = value
		return
	}
	below, ok := n[path[0]].(node)
	if !ok {
		below = node{}
		n[path[0]] = below
	}
	below.put(path[1:], value)
}

func (n node) text() string {
	text, _ := n[""].(string) // empty if n has only nodes below
	return text
}

func (n node) below(name string) node {
	below, _ := n[name].(node)
	return below
}

// structure returns the members of a JSON object.
func (n node) structure() (map[string]any, *Error) {
	members := map[string]any{}
	for name := range n {
		below := n.below(name)
		if below == nil {
			continue // a value where members belong
		}
		c, isCollection := collections[name]
		inJSON := byMember[name]
		var failed *Error
		switch {
		case below.empty() && (isCollection || inJSON.name != ""):
			c = cmp.Or(c, inJSON)
			if _, set := members[c.name]; !set {
				members[c.name] = c.none()
			}
		case isCollection && c.key == "":
			members[c.name], failed = below.list(c)
		case isCollection:
			members[c.name], failed = below.pairs(c)
		case inJSON.name != "": // JSON names are not parameters of this protocol
		case numbers[name]:
			members[name], failed = number(name, below.text())
		default:
			members[name] = below.text()
		}
		if failed != nil {
			return nil, failed
		}
	}
	return members, nil
}

func number(name, text string) (int, *Error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalidParameter(text, name, "Must be an integer.")
	}
	return n, nil
}

// items returns the elements of a list or map in numeric order. A single element may come without a
// number, as older clients send it.
func (n node) items() []node {
	if _, numbered := n["1"]; !numbered && n.lone() {
		return []node{n}
	}
	names := slices.SortedFunc(maps.Keys(n), func(a, b string) int {
		x, _ := strconv.Atoi(a) // names that are not numbers sort first
		y, _ := strconv.Atoi(b)
		return x - y
	})
	items := make([]node, len(names))
	for i, name := range names {
		items[i] = n.below(name)
	}
	return items
}

// empty reports whether n is a parameter with an empty value and nothing else.
func (n node) empty() bool {
	text, is := n[""]
	return is && text == "" && len(n) == 1
}

// lone reports whether n is an element itself: a value or a pair.
func (n node) lone() bool {
	return n[""] != nil || n["Name"] != nil || n["Key"] != nil
}

// list makes a list of texts or of entries.
func (n node) list(c collection) ([]any, *Error) {
	list := []any{}
	for _, item := range n.items() {
		if c.name != "Entries" {
			list = append(list, item.text())
			continue
		}
		members, failed := item.structure()
		if failed != nil {
			return nil, failed
		}
		list = append(list, members)
	}
	return list, nil
}

// pairs makes a map. A value is text, or an attribute's type and value.
func (n node) pairs(c collection) (map[string]any, *Error) {
	all := map[string]any{}
	for _, item := range n.items() {
		value := item.below(c.value)
		if value == nil {
			value = node{}
		}
		name := item.below(c.key).text()
		if _, twice := all[name]; twice {
			return nil, invalidValue("%s is given twice.", name)
		}
		if c.name == "Attributes" || c.name == "Tags" {
			all[name] = value.text()
			continue
		}
		members, failed := value.structure()
		if failed != nil {
			return nil, failed
		}
		all[name] = members
	}
	return all, nil
}
