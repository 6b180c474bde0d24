package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// Any client can use the SQS of `pawl dev sqs` until the command is stopped.
func TestDevSQS(t *testing.T) {
	t.Parallel()
	cmd := command(t, "", "dev", "sqs", "--listen", "127.0.0.1:0", "--queue", "orders", "--queue", "ledger.fifo", "--json")
	var running struct {
		URL    string
		Queues []string
	}
	served := serve(t, cmd, &running)
	if len(running.Queues) != 2 {
		t.Fatalf("%+v", running)
	}
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &running.URL,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if _, err := client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &running.Queues[1], MessageBody: aws.String("x"),
		MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("d")}); err != nil {
		t.Fatal(err)
	}
	got, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &running.Queues[1]})
	if err != nil || len(got.Messages) != 1 {
		t.Fatalf("received %v, %v", got, err)
	}
	busy := pawl(t, "", "dev", "sqs", "--listen", strings.TrimPrefix(running.URL, "http://"))
	wantFailure(t, busy, 1, "address already in use", "--listen")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(served.stderr.String(), "export AWS_ENDPOINT_URL="+running.URL) {
		t.Errorf("%v: %s", err, served.stderr)
	}
}

func TestDevSQS_Refusals(t *testing.T) {
	t.Parallel()
	wantFailure(t, pawl(t, "", "dev", "sqs", "--listen", "127.0.0.1:0", "--queue", "no spaces"), 2, `"no spaces" of --queue is not a queue name`, "letters")
	wantFailure(t, pawl(t, "", "dev", "sqs", "sent"), 2, `did you mean "send"?`)
	wantFailure(t, pawl(t, "", "dev", "sqs", "send"), 2, "--key")
	wantFailure(t, pawl(t, "", "dev", "sqs", "send", "--key", "k", "--repeat", "0"), 2, "--repeat must lie between 1 and 1000")
	if help := mustPawl(t, "", "dev", "sqs", "--help").stdout; !strings.Contains(help, "Usage: pawl dev sqs [COMMAND] [flags]") || !strings.Contains(help, "send ") {
		t.Error(help)
	}
	// Other machines could reach these, but for the first.
	for _, listen := range []string{"nowhere", ":9324", "0.0.0.0:9324", "[::]:9324", "10.0.0.1:9324"} {
		wantFailure(t, pawl(t, "", "dev", "sqs", "--listen", listen), 2, "--listen "+listen+" is not a loopback address", "127.0.0.1:9324")
	}
}

// A message arrives as often as it was sent, with its key. No flag is needed to find the service.
func TestDevSQSSend(t *testing.T) {
	t.Parallel()
	endpoint, client := sqsWith(t, "orders", "ledger.fifo")
	body := `{"id":"order-17"}`
	send := func(stdin string, args ...string) result {
		cmd := command(t, "", append([]string{"dev", "sqs", "send"}, args...)...)
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL="+endpoint)
		cmd.Stdin = strings.NewReader(stdin)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	if r := send("", "--key", "order-17", "--payload", body, "--queue", "orders", "--repeat", "3"); r.code != 0 || r.stdout != "sent order-17 to orders, 3 times\n" {
		t.Fatalf("%+v", r)
	}
	if r := send(body, "--key", "paid-17", "--payload", "-", "--queue", "ledger.fifo", "--group", "account-3"); r.code != 0 || r.stdout != "sent paid-17 to ledger.fifo, once\n" {
		t.Fatalf("%+v", r)
	}
	for queue, want := range map[string]string{"orders": "order-17", "ledger.fifo": "paid-17"} {
		for range map[string]int{"orders": 3, "ledger.fifo": 1}[queue] {
			got, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: aws.String(endpoint + "/000000000000/" + queue),
				MaxNumberOfMessages: 1, MessageAttributeNames: []string{"All"}})
			if err != nil || len(got.Messages) != 1 {
				t.Fatalf("%s: %v, %v", queue, got, err)
			}
			m := got.Messages[0]
			if key := aws.ToString(m.MessageAttributes["Idempotency-Key"].StringValue); key != want || *m.Body != body {
				t.Errorf("%s: key %q, body %s", queue, key, *m.Body)
			}
		}
	}
	wantFailure(t, send("", "--key", "k"), 2, "several queues: ", "orders", "ledger.fifo", "--queue")
	wantFailure(t, send("", "--key", "k", "--queue", "oders"), 1, `no queue "oders"`, "orders", "pawl dev sqs --queue oders")
	wantFailure(t, send("", "--key", "k", "--queue", "ledger.fifo"), 2, "FIFO", "--group")
	wantFailure(t, send("", "--key", "k", "--queue", "orders", "--payload", "-"), 2, "empty", "--payload")
	wantFailure(t, send("", "--key", "k", "--endpoint", "http://127.0.0.1:1"), 1, "no SQS answers at http://127.0.0.1:1", "pawl dev sqs --queue orders", "--endpoint")
}

// If there is only one queue, --queue may be left out.
func TestDevSQSSend_TheOnlyQueue(t *testing.T) {
	t.Parallel()
	endpoint, _ := sqsWith(t, "ledger")
	if r := mustPawl(t, "", "dev", "sqs", "send", "--key", "a", "--endpoint", endpoint); r.stdout != "sent a to ledger, once\n" {
		t.Errorf("%+v", r)
	}
	empty, _ := sqsWith(t)
	wantFailure(t, pawl(t, "", "dev", "sqs", "send", "--key", "a", "--endpoint", empty), 1, "no queue at "+empty, "pawl dev sqs --queue orders")
}

// sqsWith runs an SQS with queues.
func sqsWith(t *testing.T, queues ...string) (endpoint string, client *awssqs.Client) {
	t.Helper()
	listener, err := sqstest.New(sqstest.Options{}).Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	client = awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &listener.URL,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	for _, name := range queues {
		in := &awssqs.CreateQueueInput{QueueName: &name}
		if strings.HasSuffix(name, ".fifo") {
			in.Attributes = map[string]string{"FifoQueue": "true"}
		}
		if _, err := client.CreateQueue(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	return listener.URL, client
}
