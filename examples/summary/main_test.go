package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// The program of the README is killed while the model works. The next one takes the document over,
// sends the same key, and completes it. One summary is billed, though the message came three times.
func TestSummary_KilledDuringTheCall(t *testing.T) {
	t.Parallel()
	database := pawltest.URL(t)
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	thinking, answer := make(chan struct{}, 10), make(chan struct{})
	model := &provider{think: func() { thinking <- struct{}{}; <-answer }}
	server := httptest.NewServer(model.handler())
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(answer) })
	listener, err := sqstest.New(sqstest.Options{}).Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &listener.URL, Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
	if _, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("documents")}); err != nil {
		t.Fatal(err)
	}
	sender, err := pawlsqs.OpenSender(t.Context(), client, "documents", "")
	if err != nil {
		t.Fatal(err)
	}
	m := pawlsqs.Message{Key: "document-1", Payload: []byte(`{"document": 1}`)}
	if err := sender.Send(t.Context(), m, m, m); err != nil {
		t.Fatal(err)
	}

	binary := filepath.Join(t.TempDir(), "summary")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	start := func() *exec.Cmd {
		c := exec.CommandContext(context.WithoutCancel(t.Context()), binary)
		c.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + database, "QUEUE=documents", "AWS_REGION=us-east-1",
			"AWS_ENDPOINT_URL=" + listener.URL, "AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any", "PROVIDER=" + server.URL, "STUCK_AFTER=6s"}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		return c
	}
	first := start()
	patience.Receive(t, "the model works", thinking)
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	start()
	var row string
	patience.Until(t, "document 1 is completed", func() bool {
		err := pool.QueryRow(t.Context(), "select concat_ws(' ', status, summary) from document where id = 1").Scan(&row)
		return err == nil && row == "completed A long report… in short"
	})
	model.mu.Lock()
	defer model.mu.Unlock()
	if model.requests < 2 || len(model.answers) != 1 {
		t.Errorf("%d requests, %d billed; want 2 or more, and 1", model.requests, len(model.answers))
	}
}
