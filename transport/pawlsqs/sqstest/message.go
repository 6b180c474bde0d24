package sqstest

import (
	"container/list"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// messageState is the state of a message. The figure in doc.go shows the moves.
type messageState int

const (
	gone messageState = iota
	delayed
	ready
	inFlight
)

// A message is one stored copy. A second copy made by [Faults.Duplicate] has the same id and
// another number.
type message struct {
	number     int64 // counts messages stored in this queue, copies included
	copied     bool  // made by Faults.Duplicate
	id         string
	body       string
	attributes map[string]attribute
	trace      string // AWSTraceHeader
	// MessageGroupId: keeps order in a FIFO queue; on a standard queue only a tenant label
	group    string
	dedup    string // MessageDeduplicationId, in FIFO queues
	sequence uint64 // SequenceNumber, in FIFO queues
	source   string // ARN of the queue it was dead-lettered from
	sent     time.Time

	state    messageState
	due      time.Time     // end of the delay or of the visibility timeout
	timed    int           // index in the queue's timers; -1 if not there
	lane     *group        // on the shelf
	waiting  *list.Element // position in the lane
	receives int           // in all queues, as in ApproximateReceiveCount
	here     int           // in this queue, as for maxReceiveCount
	first    time.Time     // first receive
	last     time.Time     // last receive: the twelve hours start here
	handle   string        // of the last receive
	changed  bool          // visibility changed since the last receive
}

// An attribute is MessageAttributeValue and MessageSystemAttributeValue of the API reference.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

func (a attribute) value() string {
	if strings.HasPrefix(a.DataType, "Binary") {
		return string(a.BinaryValue)
	}
	if a.StringValue == nil {
		return ""
	}
	return *a.StringValue
}

// handlePrefix starts a handle, which names one receive of one copy: queue, number, receive count,
// and time.
const handlePrefix = "sqstest"

func (m *message) newHandle(queue string, now time.Time) string {
	return base64.StdEncoding.EncodeToString(
		fmt.Appendf(nil, "%s %s %d %d %d", handlePrefix, queue, m.number, m.here, now.UnixNano()))
}

type parsedHandle struct {
	number   int64
	received time.Time
}

func parseHandle(queue, handle string) (parsedHandle, *Error) {
	if handle == "" {
		return parsedHandle{}, missing("ReceiptHandle")
	}
	text, err := base64.StdEncoding.DecodeString(handle)
	parts := strings.Split(string(text), " ")
	if err != nil || len(parts) != 5 || parts[0] != handlePrefix || parts[1] != queue {
		return parsedHandle{}, garbageHandle(handle)
	}
	number, err1 := strconv.ParseInt(parts[2], 10, 64)
	nanos, err2 := strconv.ParseInt(parts[4], 10, 64)
	if err1 != nil || err2 != nil {
		return parsedHandle{}, garbageHandle(handle)
	}
	return parsedHandle{number: number, received: time.Unix(0, nanos)}, nil
}

// size counts the octets under the limit of 1 MiB: the body, and name, type and value of each
// attribute.
func size(body string, attributes map[string]attribute) int {
	n := len(body)
	for name, a := range attributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

// allowedText reports whether text has only characters of XML 1.0, as SendMessage requires.
func allowedText(text string) bool {
	for _, r := range text {
		switch {
		case r == '\t', r == '\n', r == '\r':
		case r >= 0x20 && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000 && r <= 0x10FFFF:
		default:
			return false
		}
	}
	return true
}

var (
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\..{1,249})?$`)
)

// checkAttributes applies the rules of MessageAttributeValue and "Amazon SQS message metadata".
func checkAttributes(attributes map[string]attribute) *Error {
	if len(attributes) > maxAttributes {
		return invalidValue("Number of message attributes [%d] exceeds the allowed maximum [%d].",
			len(attributes), maxAttributes)
	}
	for name, a := range attributes {
		lower := strings.ToLower(name)
		if len(name) > maxAttributeName || !attributeName.MatchString(name) ||
			strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
			return invalidValue("Message (user) attribute name '%s' is invalid.", name)
		}
		if !attributeType.MatchString(a.DataType) {
			return invalidValue("The type of message (user) attribute '%s' is invalid. You must use only the following "+
				"supported type prefixes: Binary, Number, String.", name)
		}
		if a.value() == "" {
			return invalidValue("Message (user) attribute '%s' must contain a non-empty value of type '%s'.",
				name, a.DataType)
		}
		if a.StringValue != nil && !allowedText(*a.StringValue) {
			return invalidValue("Message (user) attribute '%s' contains characters that are not allowed.", name)
		}
		if strings.HasPrefix(a.DataType, "Number") && !isNumber(a.value()) {
			return invalidValue("Can't cast the value of message (user) attribute '%s' to a number.", name)
		}
	}
	return nil
}

var decimal = regexp.MustCompile(`^[+-]?([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?$`)

// isNumber reports whether text is a valid value of type Number: a decimal of up to 38 digits,
// between 10^-128 and 10^126 ("Message attribute data types" in the developer guide). Zeros at both
// ends do not count as digits.
func isNumber(text string) bool {
	const digits, smallest, largest = 38, -128, 126
	parts := decimal.FindStringSubmatch(text)
	if parts == nil || parts[1]+parts[2] == "" {
		return false
	}
	significant := strings.TrimLeft(parts[1]+parts[2], "0")
	exponent, _ := strconv.Atoi(parts[3]) // of the first digit
	exponent += len(significant) - len(parts[2]) - 1
	significant = strings.TrimRight(significant, "0")
	switch {
	case significant == "":
		return true
	case len(significant) > digits || exponent < smallest:
		return false
	}
	return exponent < largest || exponent == largest && significant == "1"
}
