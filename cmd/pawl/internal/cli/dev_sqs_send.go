package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/internal/text"
	"github.com/pawl-go/pawl/transport/pawlsqs"
)

const (
	devSQSAddress    = "127.0.0.1:9324" // default address of dev sqs
	endpointVariable = "AWS_ENDPOINT_URL"
)

type devSendFlags struct {
	key, payload, queue, group, endpoint string
	repeat                               int
}

func newDevSQSSend() *cobra.Command {
	var f devSendFlags
	cmd := &cobra.Command{
		Use:   "send --key KEY",
		Short: "Send a message with an idempotency key, once or several times",
		Long: `Sends a message to the queue of a running pawl dev sqs, with its key in the attribute Idempotency-Key, as package transport/pawlsqs does.
With --repeat the same message is sent again, like the retries of a producer that got no response. A consumer must let it take effect
once. A FIFO queue drops the repeats itself, for five minutes.

It signs with credentials that AWS would refuse, so it reaches only services that do not authenticate.`,
		Example: `  pawl dev sqs send --key order-17 --payload '{"id":"order-17","cents":1250}' --repeat 3    # duplicates: one effect?
  pawl dev sqs send --key order-17 --payload '{"id":"order-17","cents":9}'                  # the key again, another payload: a mismatch
  pawl dev sqs send --key order-18 --payload 'not JSON'                                     # a dead letter?
  pawl dev sqs send --key paid-17 --group account-3 --queue ledger.fifo --payload - <paid.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.key, "key", "", "the idempotency key, which names the intent and is the same at each resend")
	cmd.Flags().StringVar(&f.payload, "payload", "{}", "the payload itself; - reads it from stdin")
	cmd.Flags().StringVar(&f.queue, "queue", "", "name of the queue; default: the only one")
	cmd.Flags().StringVar(&f.group, "group", "", "the message group, which a FIFO queue requires")
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, fmt.Sprintf("how often to send it, 1 to %d", mostRepeats))
	cmd.Flags().StringVar(&f.endpoint, "endpoint", "", "URL of the service; default: "+endpointVariable+", else http://"+devSQSAddress)
	return cmd
}

func (f devSendFlags) run(cmd *cobra.Command) error {
	switch {
	case f.key == "":
		return misused(cmd, "the idempotency key is missing", "pass --key, as in: pawl dev sqs send --key order-17 --payload '{\"id\":\"order-17\",\"cents\":1250}'")
	case f.repeat < 1 || f.repeat > mostRepeats:
		return misused(cmd, fmt.Sprintf("--repeat must lie between 1 and %d, it is %d", mostRepeats, f.repeat), "see: "+cmd.CommandPath()+" --help")
	}
	payload := []byte(f.payload)
	if f.payload == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), pawlsqs.MaxSize+1)); err != nil {
			return failed(cmd, fmt.Errorf("stdin: %w", err), "pass the payload with --payload")
		}
	}
	if len(payload) == 0 {
		return misused(cmd, "the payload is empty, which SQS refuses", "pass the payload with --payload")
	}
	endpoint := cmp.Or(f.endpoint, os.Getenv(endpointVariable), "http://"+devSQSAddress)
	client := devClient(endpoint)
	queue, err := f.choose(cmd, client, endpoint)
	if err != nil {
		return err
	}
	sender, err := pawlsqs.OpenSender(cmd.Context(), client, queue, "")
	if err != nil {
		return err
	}
	// every resend has the same ProducedAt
	message := pawlsqs.Message{Key: f.key, Payload: payload, Group: f.group, ProducedAt: time.Now()}
	if err := sender.Send(cmd.Context(), slices.Repeat([]pawlsqs.Message{message}, f.repeat)...); err != nil {
		return err
	}
	times := "once"
	if f.repeat > 1 {
		times = fmt.Sprintf("%d times", f.repeat)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "sent %s to %s, %s\n", text.Visible(f.key), queue, times)
	return err
}

// choose returns --queue, or the only queue there is.
func (f devSendFlags) choose(cmd *cobra.Command, client *awssqs.Client, endpoint string) (string, error) {
	names, err := queueNames(cmd.Context(), client)
	start := cmp.Or(f.queue, "orders")
	if err != nil {
		return "", failed(cmd, fmt.Errorf("no SQS answers at %s: %w", endpoint, err),
			"start one with: pawl dev sqs --queue "+start+", or name another with --endpoint or "+endpointVariable)
	}
	queue, there := f.queue, strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		return "", failed(cmd, fmt.Errorf("there is no queue at %s", endpoint), "start it with one: pawl dev sqs --queue "+start)
	case queue == "" && len(names) > 1:
		return "", misused(cmd, "there are several queues: "+there, "choose one with --queue")
	case queue == "":
		queue = names[0]
	case !slices.Contains(names, queue):
		return "", failed(cmd, fmt.Errorf("there is no queue %q at %s, but %s", queue, endpoint, there), "correct --queue, or start the service with: pawl dev sqs --queue "+queue)
	}
	if strings.HasSuffix(queue, ".fifo") && f.group == "" {
		return "", misused(cmd, queue+" is a FIFO queue, which requires a message group", "pass --group: what must stay in order")
	}
	return queue, nil
}

// queueNames lists the first thousand queues.
func queueNames(ctx context.Context, client *awssqs.Client) (names []string, err error) {
	all, err := client.ListQueues(ctx, &awssqs.ListQueuesInput{MaxResults: aws.Int32(1000)})
	if err != nil {
		return nil, err
	}
	for _, url := range all.QueueUrls {
		names = append(names, path.Base(url))
	}
	return names, nil
}

// devClient calls a service without authentication, and gives up soon if it does not respond.
func devClient(endpoint string) *awssqs.Client {
	return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
		Retryer:     retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = 100 * time.Millisecond })})
}
