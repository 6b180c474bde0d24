package vet

import (
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// A broker's package prefix, and the names of its functions and methods.
type broker struct {
	prefix   string
	acks     []string
	sends    []string
	messages []string // types of received messages, relative to the prefix
}

var brokers = []broker{
	{"github.com/aws/aws-sdk-go-v2/service/sqs", []string{"DeleteMessage", "DeleteMessageBatch"}, nil, []string{"/types.Message"}},
	{"github.com/aws/aws-sdk-go/service/sqs", []string{"DeleteMessage", "DeleteMessageWithContext", "DeleteMessageBatch", "DeleteMessageBatchWithContext"}, nil, []string{".Message"}},
	{"github.com/aws/aws-lambda-go/events", nil, nil, []string{".SQSMessage", ".SQSEvent"}},
	{"github.com/segmentio/kafka-go", []string{"CommitMessages"}, []string{"WriteMessages"}, []string{".Message"}},
	{"github.com/twmb/franz-go/pkg/kgo", []string{"CommitRecords", "CommitUncommittedOffsets", "CommitOffsets", "CommitOffsetsSync", "CommitMarkedOffsets", "MarkCommitRecords", "MarkCommitOffsets"},
		[]string{"Produce", "ProduceSync", "TryProduce"}, []string{".Record", ".Fetches"}},
	{"github.com/IBM/sarama", []string{"MarkMessage", "MarkOffset", "Commit"}, []string{"SendMessage", "SendMessages"}, []string{".ConsumerMessage"}},
	{"github.com/Shopify/sarama", []string{"MarkMessage", "MarkOffset", "Commit"}, []string{"SendMessage", "SendMessages"}, []string{".ConsumerMessage"}},
	{"github.com/confluentinc/confluent-kafka-go", []string{"Commit", "CommitMessage", "CommitOffsets", "StoreMessage", "StoreOffsets"}, []string{"Produce"}, []string{"/kafka.Message", "/v2/kafka.Message"}},
	{"github.com/rabbitmq/amqp091-go", []string{"Ack"}, []string{"Publish", "PublishWithContext", "PublishWithDeferredConfirm", "PublishWithDeferredConfirmWithContext"}, []string{".Delivery"}},
	{"github.com/streadway/amqp", []string{"Ack"}, []string{"Publish"}, []string{".Delivery"}},
	{"github.com/nats-io/nats.go", []string{"Ack", "AckSync", "DoubleAck"},
		[]string{"Publish", "PublishMsg", "PublishRequest", "PublishAsync", "PublishMsgAsync", "Request", "RequestMsg", "RequestWithContext", "RequestMsgWithContext"}, []string{".Msg", "/jetstream.Msg"}},
	{"github.com/ThreeDotsLabs/watermill/message", []string{"Ack"}, []string{"Publish"}, []string{".Message"}},
	{"cloud.google.com/go/pubsub", []string{"Ack", "AckWithResult"}, []string{"Publish"}, []string{".Message", "/v2.Message"}},
	{"github.com/apache/pulsar-client-go", []string{"Ack", "AckID", "AckCumulative"}, []string{"Send"}, []string{"/pulsar.Message"}},
	{"github.com/redis/go-redis", []string{"XAck"}, []string{"Publish", "XAdd"}, nil},
	{"github.com/pawl-go/pawl", nil, nil, []string{".Delivery", "/consumer.Message", "/job.Task"}},
	{"github.com/riverqueue/river", nil, nil, []string{".Job"}},
}

// others are libraries that call other systems, with their sending functions and methods.
var others = map[string][]string{
	"net/http":                        {"Get", "Head", "Post", "PostForm", "Do", "RoundTrip"},
	"net/smtp":                        {"SendMail"},
	"net":                             {"Dial", "DialTimeout", "DialContext"},
	"google.golang.org/grpc":          {"Invoke", "NewStream"},
	"github.com/go-resty/resty":       {"Get", "Post", "Put", "Patch", "Delete", "Head", "Send", "Execute"},
	"resty.dev/v3":                    {"Get", "Post", "Put", "Patch", "Delete", "Head", "Send", "Execute"},
	"github.com/slack-go/slack":       {"PostMessage", "PostMessageContext", "PostWebhook", "PostWebhookContext", "SendMessage", "SendMessageContext"},
	"github.com/sendgrid/sendgrid-go": {"Send", "SendWithContext", "API", "MakeRequest"},
	"github.com/mailgun/mailgun-go":   {"Send"},
	"github.com/resend/resend-go":     {"Send", "SendWithContext"},
	"github.com/twilio/twilio-go":     {"CreateMessage", "CreateCall", "CreateVerification"},
	"gopkg.in/gomail.v2":              {"DialAndSend"},
}

var stripeVerbs = []string{"New", "Get", "Update", "Del", "Cancel", "Capture", "Confirm", "Create", "Retrieve", "Delete", "Pay", "FinalizeInvoice"}

func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/") || strings.HasPrefix(path, prefix+".")
}

// touches reports whether a call belongs to a package: by its function, its receiver or a
// parameter. An interface of the user that lists a method of an SDK counts.
func (c *call) touches(prefix string) bool {
	if below(c.pkg, prefix) || c.recv != nil && below(typeName(c.recv.Type()), prefix) {
		return true
	}
	if c.sig == nil {
		return false
	}
	for p := range c.sig.Params().Variables() {
		t := p.Type()
		if s, is := t.(*types.Slice); is {
			t = s.Elem()
		}
		if below(typeName(t), prefix) {
			return true
		}
	}
	return false
}

// A queue of the user's own, and its messages.
var (
	queueType   = regexp.MustCompile(`(?i)(queue|consumer|subscription)[^.]*$`)
	messageType = regexp.MustCompile(`(?i)\.(message|msg|delivery|receipt)$`)
)

// acks reports whether the call acknowledges. surely says that a known broker is meant, and not a
// method that only has the name.
func (c *call) acks() (acks, surely bool) {
	for _, b := range brokers {
		if slices.Contains(b.acks, c.name) && c.touches(b.prefix) {
			return true, true
		}
	}
	if (c.name == "Delete" || c.name == "Remove") && c.recv != nil && queueType.MatchString(typeName(c.recv.Type())) &&
		slices.ContainsFunc(c.args, func(a ssa.Value) bool { return messageType.MatchString(typeName(a.Type())) }) {
		return true, false
	}
	if (c.name == "Ack" || c.name == "Acknowledge") && c.recv != nil && c.sig.Params().Len() <= 2 && c.sig.Results().Len() <= 1 &&
		!slices.ContainsFunc(c.args, func(a ssa.Value) bool { return kindOf(a.Type()) != noHandle }) && !isContextual(c.recv.Type()) {
		return true, false
	}
	return false, false
}

// isContextual reports whether a type executes SQL itself: its Ack is a row, not a message of a
// broker.
func isContextual(t types.Type) bool { return kindOf(t) != noHandle }

// receives reports whether the call takes the next messages.
func (c *call) receives() bool {
	switch c.name {
	case "Receive", "ReceiveMessage", "ReceiveMessageWithContext", "FetchMessage", "ReadMessage", "Poll", "PollFetches", "PollRecords", "NextMsg", "NextMsgWithContext", "Fetch", "Next", "FetchOne":
		return c.recv != nil && kindOf(c.recv.Type()) == noHandle
	}
	return false
}

// outside describes a call to another system, or returns "".
func (c *call) outside() string {
	if c.obj == nil {
		return ""
	}
	for prefix, names := range others {
		if slices.Contains(names, c.name) && below(c.pkg, prefix) && (prefix != "net/http" || c.recv == nil || strings.HasSuffix(typeName(c.recv.Type()), "Client") || strings.HasSuffix(typeName(c.recv.Type()), "Transport") || c.name == "RoundTrip") {
			return c.display()
		}
	}
	for _, b := range brokers {
		if slices.Contains(b.sends, c.name) && (below(c.pkg, b.prefix) || c.recv != nil && c.touches(b.prefix)) && !strings.Contains(c.pkg, "gochannel") {
			return c.display()
		}
	}
	params := c.sig.Params()
	if c.name == "Do" && params.Len() == 1 && typeName(params.At(0).Type()) == "net/http.Request" {
		return c.display()
	}
	if below(c.pkg, "github.com/stripe/stripe-go") && slices.Contains(stripeVerbs, c.name) && params.Len() > 0 && strings.HasSuffix(typeName(params.At(params.Len()-1).Type()), "Params") {
		return c.display()
	}
	if params.Len() == 0 {
		return ""
	}
	if c.sig.Variadic() {
		last := params.At(params.Len() - 1).Type().(*types.Slice)
		if typeName(last.Elem()) == "google.golang.org/grpc.CallOption" && c.sig.Results().Len() == 2 && c.recv != nil {
			return c.display()
		}
		if f, is := last.Elem().(*types.Signature); is && f.Params().Len() == 1 {
			name := typeName(f.Params().At(0).Type())
			if below(name, "github.com/aws/aws-sdk-go-v2/service") && strings.HasSuffix(name, ".Options") && c.recv != nil && c.sig.Results().Len() == 2 {
				return c.display()
			}
		}
	}
	if below(c.pkg, "github.com/aws/aws-sdk-go/service") && c.recv != nil && c.sig.Results().Len() == 2 && strings.HasSuffix(typeName(params.At(params.Len()-1).Type()), "Input") && !strings.HasSuffix(c.name, "Request") {
		return c.display()
	}
	return ""
}

// isMessage reports whether a value of the type is a received message, or several.
func isMessage(t types.Type) bool {
	if s, is := t.Underlying().(*types.Slice); is {
		t = s.Elem()
	}
	name := typeName(t)
	if name == "" {
		return false
	}
	for _, b := range brokers {
		rest, is := strings.CutPrefix(name, b.prefix)
		if is && slices.Contains(b.messages, rest) {
			return true
		}
	}
	return false
}
