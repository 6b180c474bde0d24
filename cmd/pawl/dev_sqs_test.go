package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Any client can use the SQS of `pawl dev sqs` until the command is told to stop.
func TestDevSQS(t *testing.T) {
	t.Parallel()
	cmd := command(t, "", "dev", "sqs", "--listen", "127.0.0.1:0", "--queue", "orders", "--queue", "ledger.fifo", "--json")
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var running struct {
		URL    string
		Queues []string
	}
	if err := json.Unmarshal(line, &running); err != nil || len(running.Queues) != 2 {
		t.Fatalf("%v: %q", err, line)
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
	if err := cmd.Wait(); err != nil || !strings.Contains(stderr.String(), "export AWS_ENDPOINT_URL="+running.URL) {
		t.Errorf("%v: %s", err, stderr)
	}
}

func TestDevSQS_Refusals(t *testing.T) {
	t.Parallel()
	wantFailure(t, pawl(t, "", "dev", "sqs", "--listen", "127.0.0.1:0", "--queue", "no spaces"), 2, "cannot be a queue", "letters")
	wantFailure(t, pawl(t, "", "dev", "sqs", "--listen", "nowhere"), 1, "nowhere", "--listen")
}
