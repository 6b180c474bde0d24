package sqstest_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

func clientOf(s *sqstest.Server) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.test"), HTTPClient: s,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", "")})
}

// Each response has its own request id, errors included.
func TestAnswers_HaveARequestID(t *testing.T) {
	t.Parallel()
	client := clientOf(sqstest.New(sqstest.Options{}))
	ids := map[string]bool{}
	for range 3 {
		out, err := client.ListQueues(t.Context(), &awssqs.ListQueuesInput{})
		if err != nil {
			t.Fatal(err)
		}
		id, _ := awsmiddleware.GetRequestIDMetadata(out.ResultMetadata)
		ids[id] = true
	}
	_, err := client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("none")})
	var refused interface{ ServiceRequestID() string }
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	ids[refused.ServiceRequestID()] = true
	if len(ids) != 4 || ids[""] {
		t.Errorf("the ids are %v", ids)
	}
}

// Tags are stored, changed and bounded, including those of CreateQueue.
func TestTags(t *testing.T) {
	t.Parallel()
	client := clientOf(sqstest.New(sqstest.Options{}))
	made, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("q"), Tags: map[string]string{"team": "a", "stage": "test"}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(tags map[string]string) {
		t.Helper()
		out, err := client.ListQueueTags(t.Context(), &awssqs.ListQueueTagsInput{QueueUrl: made.QueueUrl})
		if err != nil || !maps.Equal(out.Tags, tags) {
			t.Errorf("the tags are %v, want %v; %v", out, tags, err)
		}
	}
	want(map[string]string{"team": "a", "stage": "test"})
	if _, err := client.TagQueue(t.Context(), &awssqs.TagQueueInput{QueueUrl: made.QueueUrl, Tags: map[string]string{"team": "b", "empty": ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagQueue(t.Context(), &awssqs.UntagQueueInput{QueueUrl: made.QueueUrl, TagKeys: []string{"stage", "none"}}); err != nil {
		t.Fatal(err)
	}
	want(map[string]string{"team": "b", "empty": ""})
	many := map[string]string{}
	for n := range 49 {
		many[strings.Repeat("k", n+1)] = "v"
	}
	for _, tags := range []map[string]string{many, {strings.Repeat("k", 129): "v"}, {"k": strings.Repeat("v", 257)}} {
		if _, err := client.TagQueue(t.Context(), &awssqs.TagQueueInput{QueueUrl: made.QueueUrl, Tags: tags}); codeOf(err) != "InvalidParameterValue" {
			t.Errorf("%d tags: %v", len(tags), err)
		}
	}
	want(map[string]string{"team": "b", "empty": ""})
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// An attribute name that SQS does not have is refused. One that this queue has not set is left out.
func TestGetQueueAttributes_RefusesUnknownNames(t *testing.T) {
	t.Parallel()
	client := clientOf(sqstest.New(sqstest.Options{}))
	made, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name types.QueueAttributeName) (*awssqs.GetQueueAttributesOutput, error) {
		return client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: made.QueueUrl, AttributeNames: []types.QueueAttributeName{name}})
	}
	if _, err := ask("VisibilityTimeOut"); codeOf(err) != "InvalidAttributeName" || !strings.Contains(err.Error(), "VisibilityTimeOut") {
		t.Errorf("unknown: %v", err)
	}
	for _, name := range types.QueueAttributeName("").Values() {
		if _, err := ask(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
