package pawlsqs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// wantAdvice checks that err is a *pawl.Error in one line that names the problem and the next step.
func wantAdvice(t *testing.T, err error, parts ...string) {
	t.Helper()
	var ours *pawl.Error
	if !errors.As(err, &ours) || ours.Hint == "" {
		t.Fatalf("got %v, want a *pawl.Error with a hint", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %s", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestOpen_ByNameAndByURL(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	for _, queue := range []string{"q", f.url} {
		source, err := pawlsqs.Open(t.Context(), f.client, queue, pawlsqs.Config{})
		f.must(err)
		if source.QueueURL() != f.url {
			t.Errorf("%s became %s", queue, source.QueueURL())
		}
	}
}

func TestOpen_SaysThatTheQueueIsMissing(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	for _, queue := range []string{"orders", strings.TrimSuffix(f.url, "q") + "orders"} {
		_, err := pawlsqs.Open(t.Context(), f.client, queue, pawlsqs.Config{})
		wantAdvice(t, err, "sqs.open", "orders", "does not exist", "region")
		var missing *types.QueueDoesNotExist
		if !errors.As(err, &missing) {
			t.Errorf("the SDK's error is lost: %v", err)
		}
	}
}

func TestOpen_SaysThatTheEndpointIsUnreachable(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	client := awssqs.New(newClient(nil, "http://"+closed.Addr().String()).Options(), quick)
	_, err = pawlsqs.Open(t.Context(), client, "q", pawlsqs.Config{})
	wantAdvice(t, err, "sqs.open", "unreachable", "endpoint")
}

func TestOpen_SaysThatTheEndpointHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
		f.server.SetFaults(sqstest.Faults{Latency: func(sqstest.Call) time.Duration { return time.Hour }})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := pawlsqs.Open(ctx, f.client, "q", pawlsqs.Config{})
		wantAdvice(t, err, "sqs.open", "no answer in time", "endpoint")
		_, err = f.source.Receive(t.Context(), 1) // Receive has its own deadline
		wantAdvice(t, err, "sqs.receive", "no answer in time")
	})
}

// quick disables the SDK's retries and their waits.
func quick(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} }

func TestOpen_SaysThatCredentialsFail(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	none := awssqs.New(f.client.Options(), quick, func(o *awssqs.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role, no profile, no environment")
		})
	})
	_, err := pawlsqs.Open(t.Context(), none, "q", pawlsqs.Config{})
	wantAdvice(t, err, "no AWS credentials", "AWS_ACCESS_KEY_ID")

	f.server.SetFaults(sqstest.Faults{Fail: func(sqstest.Call) *sqstest.Error {
		return &sqstest.Error{Shape: "InvalidClientTokenId", Message: "The security token included in the request is invalid.", Status: 403}
	}})
	_, err = pawlsqs.Open(t.Context(), f.client, "q", pawlsqs.Config{})
	wantAdvice(t, err, "InvalidClientTokenId", "check the credentials")

	f.server.SetFaults(sqstest.Faults{Fail: func(sqstest.Call) *sqstest.Error {
		return &sqstest.Error{Shape: "AccessDeniedException", Message: "not authorized to perform: sqs:getqueueurl", Status: 403}
	}})
	_, err = pawlsqs.Open(t.Context(), f.client, "q", pawlsqs.Config{})
	wantAdvice(t, err, "AccessDenied", "IAM actions")
}

// A client that times out before the poll is answered would strand messages with every poll.
func TestOpen_RefusesAnImpatientClient(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	for _, h := range []awssqs.HTTPClient{
		&http.Client{Timeout: 20 * time.Second},
		awshttp.NewBuildableClient().WithTimeout(15 * time.Second),
	} {
		_, err := pawlsqs.Open(t.Context(), newClient(h, "http://sqs.test"), "q", pawlsqs.Config{})
		wantAdvice(t, err, "gives up after", "Wait")
	}
	l, err := f.server.Start()
	f.must(err)
	defer l.Close()
	_, err = pawlsqs.Open(t.Context(), newClient(&http.Client{Timeout: 20 * time.Second}, l.URL), "q", pawlsqs.Config{Wait: 10 * time.Second})
	f.must(err)
}

func TestConfig_Bounds(t *testing.T) {
	t.Parallel()
	f := setup(t, sqstest.Faults{}, pawlsqs.Config{})
	for _, cfg := range []pawlsqs.Config{
		{Visibility: time.Millisecond}, {Visibility: -time.Second}, {Visibility: 12*time.Hour + 1},
		{Wait: 21 * time.Second}, {Wait: -time.Second}, {StopWait: -1}, {StopWait: 31 * time.Second},
		{Key: pawlsqs.KeyAttribute("")}, {Key: pawlsqs.KeyJSON("")}, {Key: pawlsqs.KeyJSON("id")}, {Key: pawlsqs.KeyJSON("/a~2")}, {Key: pawlsqs.KeyJSON("/a~")},
	} {
		_, err := pawlsqs.Open(t.Context(), f.client, "q", cfg)
		if pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
	for _, cfg := range []pawlsqs.Config{{}, {Visibility: 12 * time.Hour, Wait: time.Nanosecond}, {Visibility: time.Second, Wait: pawlsqs.ShortPoll},
		{Key: pawlsqs.KeyJSON("/a~0~1b/0")}} {
		_, err := pawlsqs.Open(t.Context(), f.client, "q", cfg)
		f.must(err)
	}
}
