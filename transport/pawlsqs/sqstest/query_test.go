package sqstest_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// asker is a client of the query protocol: it posts forms as text.
type asker struct {
	*testing.T
	server *sqstest.Server
}

func (a asker) post(path, form string) (status int, text string) {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "http://sqs.test"+path, strings.NewReader(form))
	if err != nil {
		a.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	return a.do(r)
}

func (a asker) do(r *http.Request) (status int, text string) {
	a.Helper()
	response, err := a.server.Do(r)
	if err != nil {
		a.Fatal(err)
	}
	octets, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	id := response.Header.Get("X-Amzn-RequestId")
	if n := strings.Count(string(octets), "<RequestId>"+id+"</RequestId>"); n != 1 || len(id) != 36 {
		a.Errorf("the request id %q is %d times in %s", id, n, octets)
	}
	if kind := response.Header.Get("Content-Type"); kind != "text/xml" {
		a.Errorf("the content is %s", kind)
	}
	return response.StatusCode, string(octets)
}

// ok posts to the queue "q" and decodes the response into out.
func (a asker) ok(form string, out any) {
	a.Helper()
	status, text := a.post("/000000000000/q", form)
	if status != http.StatusOK {
		a.Fatalf("%s: %d %s", form, status, text)
	}
	if out == nil {
		return
	}
	if err := xml.Unmarshal([]byte(text), out); err != nil {
		a.Fatalf("%v in %s", err, text)
	}
}

func newAsker(t *testing.T) asker {
	a := asker{t, sqstest.New(sqstest.Options{})}
	if status, text := a.post("/", "Action=CreateQueue&QueueName=q&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=40&Tag.1.Key=team&Tag.1.Value=a"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	return a
}

// The SendMessage example of the API reference gets exactly the documented response, except for
// ids.
func TestQuery_SendMessageOfTheReference(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	status, text := a.post("/000000000000/q/", "Action=SendMessage&MessageBody=This+is+a+test+message"+
		"&MessageAttribute.1.Name=test_attribute_name_1&MessageAttribute.1.Value.StringValue=test_attribute_value_1&MessageAttribute.1.Value.DataType=String"+
		"&MessageAttribute.2.Name=test_attribute_name_2&MessageAttribute.2.Value.StringValue=test_attribute_value_2&MessageAttribute.2.Value.DataType=String"+
		"&Expires=2020-05-05T22%3A52%3A43PST&Version=2012-11-05")
	text = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(text, "ID")
	const want = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<SendMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><SendMessageResult>` +
		`<MD5OfMessageAttributes>d53f3b558fe951154770f25cb63dbba9</MD5OfMessageAttributes>` +
		`<MD5OfMessageBody>fafb00f5732ab283681e124bf8747ed1</MD5OfMessageBody><MessageId>ID</MessageId></SendMessageResult>` +
		`<ResponseMetadata><RequestId>ID</RequestId></ResponseMetadata></SendMessageResponse>`
	if status != http.StatusOK || text != want {
		t.Errorf("%d\n%s\nwant\n%s", status, text, want)
	}
}

// pair is an attribute or a tag.
type pair struct{ Name, Key, Value string }

func joined(pairs []pair) string {
	all := make([]string, len(pairs))
	for i, p := range pairs {
		all[i] = p.Name + p.Key + "=" + p.Value
	}
	return strings.Join(all, " ")
}

// Attributes and tags are numbered pairs, in any order. A single one may come without a number, as
// boto 2 sends it.
func TestQuery_ListsAndMaps(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	a.ok("Action=SetQueueAttributes&Attribute.Name=DelaySeconds&Attribute.Value=3", nil)
	a.ok("Action=TagQueue&Tag.2.Value=c&Tag.2.Key=stage&Tag.1.Key=x&Tag.1.Value=", nil)
	a.ok("Action=UntagQueue&TagKey.1=none&TagKey.2=x", nil)
	var tags struct {
		Tags []pair `xml:"ListQueueTagsResult>Tag"`
	}
	if a.ok("Action=ListQueueTags", &tags); joined(tags.Tags) != "stage=c team=a" {
		t.Errorf("the tags are %v", tags)
	}
	for form, want := range map[string]string{
		"AttributeName=DelaySeconds": "DelaySeconds=3",
		"AttributeName.1=DelaySeconds&AttributeName.10=QueueArn&AttributeName.2=VisibilityTimeout": "DelaySeconds=3 QueueArn=arn:aws:sqs:us-east-1:000000000000:q VisibilityTimeout=40",
		"":                "",
		"AttributeName=":  "", // an empty list, as awsQuery sends it
		"AttributeNames=": "", // an empty list, as some clients send it
		"AttributeNames=&AttributeName.1=DelaySeconds": "DelaySeconds=3",
	} {
		var attributes struct {
			Attributes []pair `xml:"GetQueueAttributesResult>Attribute"`
		}
		if a.ok("Action=GetQueueAttributes&"+form, &attributes); joined(attributes.Attributes) != want {
			t.Errorf("%s: %v", form, attributes)
		}
	}
}

// An empty list or map is its name with an empty value.
func TestQuery_EmptyCollections(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	a.ok("Action=SendMessage&MessageBody=a&MessageAttribute=&MessageSystemAttributes=", nil)
	a.ok("Action=SetQueueAttributes&Attribute=&Attributes=", nil)
	a.ok("Action=CreateQueue&QueueName=q2&Tag=&Attribute=", nil)
	ms := a.receive("AttributeNames=&MessageSystemAttributeName=&MessageAttributeName=&MessageAttributeNames=")
	if len(ms) != 1 || len(ms[0].Attributes)+len(ms[0].MessageAttributes) != 0 {
		t.Errorf("received %+v", ms)
	}
	for range 20 { // parameters have no order
		var one struct {
			Attributes []pair `xml:"GetQueueAttributesResult>Attribute"`
		}
		if a.ok("Action=GetQueueAttributes&AttributeNames=&AttributeName.1=DelaySeconds", &one); joined(one.Attributes) != "DelaySeconds=0" {
			t.Errorf("%v beside an empty list", one)
		}
	}
	var tags struct {
		Tags []pair `xml:"ListQueueTagsResult>Tag"`
	}
	if a.ok("Action=ListQueueTags", &tags); joined(tags.Tags) != "team=a" {
		t.Errorf("the tags are %v", tags)
	}
}

type queryMessage struct {
	MessageId, ReceiptHandle, Body, MD5OfBody string
	Attributes                                []pair `xml:"Attribute"`
	MessageAttributes                         []struct {
		Name  string
		Value struct{ DataType, StringValue, BinaryValue string }
	} `xml:"MessageAttribute"`
}

func (a asker) receive(form string) []queryMessage {
	a.Helper()
	var out struct {
		Messages []queryMessage `xml:"ReceiveMessageResult>Message"`
	}
	a.ok("Action=ReceiveMessage&"+form, &out)
	return out.Messages
}

// Text that is special in XML and in forms arrives as it was sent.
func TestQuery_BodiesArriveAsSent(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	body := "<a b=\"c\">&amp; 'd' ]]></a>\r\n\tw\u00f6rld+%20\U0001F600 \u00a0\u2028"
	a.ok(url.Values{"Action": {"SendMessage"}, "MessageBody": {body}, "MessageAttribute.1.Name": {"b"}, "MessageAttribute.1.Value.DataType": {"Binary"},
		"MessageAttribute.1.Value.BinaryValue": {"AP8="}}.Encode(), nil)
	ms := a.receive("AttributeName.1=ApproximateReceiveCount&MessageAttributeName.1=All&MaxNumberOfMessages=10")
	if len(ms) != 1 || ms[0].Body != body || len(ms[0].MessageAttributes) != 1 || ms[0].MessageAttributes[0].Value.BinaryValue != "AP8=" ||
		joined(ms[0].Attributes) != "ApproximateReceiveCount=1" {
		t.Errorf("received %+v", ms)
	}
	if rest := a.receive("MaxNumberOfMessages=10"); len(rest) != 0 {
		t.Errorf("received %+v", rest)
	}
}

// The entries of a batch are processed one by one, and the response names each.
func TestQuery_Batches(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	var sent struct {
		Good []struct{ Id, MD5OfMessageBody string } `xml:"SendMessageBatchResult>SendMessageBatchResultEntry"`
		Bad  []struct {
			Id, Code, Message string
			SenderFault       bool
		} `xml:"SendMessageBatchResult>BatchResultErrorEntry"`
	}
	a.ok("Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=good&SendMessageBatchRequestEntry.1.MessageBody=a"+
		"&SendMessageBatchRequestEntry.2.Id=bad&SendMessageBatchRequestEntry.2.MessageBody=%01"+
		"&SendMessageBatchRequestEntry.3.Id=late&SendMessageBatchRequestEntry.3.MessageBody=b&SendMessageBatchRequestEntry.3.DelaySeconds=900"+
		"&SendMessageBatchRequestEntry.3.MessageAttribute.1.Name=k&SendMessageBatchRequestEntry.3.MessageAttribute.1.Value.DataType=String"+
		"&SendMessageBatchRequestEntry.3.MessageAttribute.1.Value.StringValue=v", &sent)
	if len(sent.Good) != 2 || sent.Good[0].Id != "good" || sent.Good[1].Id != "late" || len(sent.Bad) != 1 || sent.Bad[0].Id != "bad" ||
		sent.Bad[0].Code != "InvalidMessageContents" || !sent.Bad[0].SenderFault {
		t.Errorf("the answer is %+v", sent)
	}
	ms := a.receive("MaxNumberOfMessages=10")
	if len(ms) != 1 || ms[0].Body != "a" {
		t.Fatalf("received %+v", ms)
	}
	handle := url.QueryEscape(ms[0].ReceiptHandle)
	var changed, deleted struct {
		Changed []struct{ Id string } `xml:"ChangeMessageVisibilityBatchResult>ChangeMessageVisibilityBatchResultEntry"`
		Deleted []struct{ Id string } `xml:"DeleteMessageBatchResult>DeleteMessageBatchResultEntry"`
	}
	a.ok("Action=ChangeMessageVisibilityBatch&ChangeMessageVisibilityBatchRequestEntry.1.Id=x&ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout=90"+
		"&ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle="+handle, &changed)
	a.ok("Action=DeleteMessageBatch&DeleteMessageBatchRequestEntry.1.Id=y&DeleteMessageBatchRequestEntry.1.ReceiptHandle="+handle, &deleted)
	if len(changed.Changed) != 1 || changed.Changed[0].Id != "x" || len(deleted.Deleted) != 1 || deleted.Deleted[0].Id != "y" {
		t.Errorf("changed %+v, deleted %+v", changed, deleted)
	}
	if stats := a.server.Stats("q"); stats.Deleted != 1 || stats.Delayed != 1 {
		t.Errorf("the stats are %+v", stats)
	}
}

// A call may be a GET, and its parameters may be in the URL and in the body.
func TestQuery_GET(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sqs.test/?Action=ListQueues&QueueNamePrefix=q&Version=2012-11-05", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := a.do(r); status != http.StatusOK || !strings.Contains(text, "<ListQueuesResult><QueueUrl>http://sqs.test/000000000000/q</QueueUrl></ListQueuesResult>") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := a.post("/?Action=GetQueueUrl", "QueueName=q"); status != http.StatusOK || !strings.Contains(text, "<QueueUrl>http://sqs.test/000000000000/q</QueueUrl>") {
		t.Errorf("%d %s", status, text)
	}
}

// goWords matches terms of Go's libraries, which must not appear in errors.
var goWords = regexp.MustCompile(`json:|Go |struct|unmarshal|illegal base64|\[\]|of type`)

// A refusal has a code, a status and the party at fault.
func TestQuery_Refusals(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	a.ok("Action=PurgeQueue", nil)
	for _, c := range []struct {
		form   string
		status int
		code   string
	}{
		{"Action=GetQueueUrl&QueueName=none", 400, "AWS.SimpleQueueService.NonExistentQueue"},
		{"Action=Fly", 400, "InvalidAction"},
		{"Version=2012-11-05", 400, "MissingAction"},
		{"Action=ReceiveMessage&WaitTimeSeconds=soon", 400, "InvalidParameterValue"},
		{"Action=SendMessage", 400, "MissingParameter"},
		{"Action=PurgeQueue", 403, "AWS.SimpleQueueService.PurgeQueueInProgress"},
		{"Action=SetQueueAttributes&Attribute.1.Name=Colour&Attribute.1.Value=red", 400, "InvalidAttributeName"},
		{"Action=SetQueueAttributes&Attribute.1.Name=DelaySeconds&Attribute.1.Value=1&Attribute.2.Name=DelaySeconds&Attribute.2.Value=2", 400, "InvalidParameterValue"},
		{"Action=SendMessageBatch", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=SendMessageBatch&SendMessageBatchRequestEntry=", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=SendMessageBatch&Entries=", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=DeleteMessageBatch&Entries=", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=ChangeMessageVisibilityBatch&ChangeMessageVisibilityBatchRequestEntry=", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=TagQueue&Tags=", 400, "MissingParameter"},
		{"Action=UntagQueue&TagKey=", 400, "MissingParameter"},
		{"Action=SendMessageBatch&Entries.1.Id=a", 400, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"Action=SendMessageBatch&SendMessageBatchRequestEntry.1=a", 400, "AWS.SimpleQueueService.InvalidBatchEntryId"},
		{"Action=GetQueueAttributes&AttributeName.1.Id=a", 400, "InvalidAttributeName"},
		{"Action=SendMessage&MessageBody=a&MessageAttribute.1.Name=b&MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue=!", 400, "SerializationException"},
		{"Action=SetQueueAttributes&Attribute.1.Name=FifoQueue&Attribute.1.Value=true", 400, "InvalidAttributeName"},
		{"Action=AddPermission", 400, "AWS.SimpleQueueService.UnsupportedOperation"},
		{"Action=SendMessage&MessageBody=%ff", 400, "MalformedQueryString"},
		{"Action=SendMessage&MessageBody=%zz", 400, "MalformedQueryString"},
		{"Action=SendMessage&MessageBody=x&" + strings.Repeat("a.", 1<<20) + "=", 400, "MalformedQueryString"},
		{"Action=StartMessageMoveTask&SourceArn=arn:none", 404, "ResourceNotFoundException"},
	} {
		status, text := a.post("/000000000000/q", c.form)
		var refusal struct {
			XMLName   xml.Name `xml:"http://queue.amazonaws.com/doc/2012-11-05/ ErrorResponse"`
			Error     struct{ Type, Code, Message string }
			RequestId string
		}
		if err := xml.Unmarshal([]byte(text), &refusal); err != nil {
			t.Fatalf("%.100s: %v in %s", c.form, err, text)
		}
		if status != c.status || refusal.Error.Code != c.code || refusal.Error.Type != "Sender" || refusal.Error.Message == "" || goWords.MatchString(text) {
			t.Errorf("%.100s: %d %s", c.form, status, text)
		}
	}
	a.server.SetFaults(sqstest.Faults{Fail: func(sqstest.Call) *sqstest.Error { return sqstest.Internal() }})
	if status, text := a.post("/", "Action=ListQueues"); status != 500 || !strings.Contains(text, "<Type>Receiver</Type><Code>InternalError</Code>") {
		t.Errorf("%d %s", status, text)
	}
}
