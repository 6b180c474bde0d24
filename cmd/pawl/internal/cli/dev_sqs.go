package cli

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

// A devQueue is the output of `pawl dev sqs --json`. Fields are only added, never removed.
type devQueue struct {
	URL    string   `json:"url"`    // the endpoint
	Queues []string `json:"queues"` // URLs of the queues created at the start
}

type devSQSFlags struct {
	listen string
	queues queueFlag
	chaos  uint64
	json   *bool
}

func newDevSQS() *cobra.Command {
	var f devSQSFlags
	cmd := &cobra.Command{
		Use:   "sqs",
		Short: "Run an SQS in memory until Ctrl-C, to test a client",
		Long: `Runs the SQS that Pawl's own tests use: standard and FIFO queues, dead-letter queues, long polls. Everything is in memory and
gone when this command ends. Nothing is authenticated and any credentials work, so it listens on loopback only. Each user of this
machine can read, send and delete its messages.

It was never compared with a real AWS account. With --chaos SEED it misbehaves as SQS may: second copies, lost deletes and responses,
errors, messages out of order, and polls that take messages for a client that has disconnected.`,
		Example: `  pawl dev sqs --queue orders --queue ledger.fifo
  pawl dev sqs send --queue orders --key order-17 --payload '{"id":"order-17"}'    # in another shell
  aws --endpoint-url http://127.0.0.1:9324 --region us-east-1 sqs list-queues`,
		Annotations: map[string]string{usageAnnotation: "[COMMAND]"},
		Args:        knownCommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", devSQSAddress, "loopback address and port; port 0 takes a free one")
	cmd.Flags().Var(&f.queues, "queue", "queue to create at the start; may be repeated; FIFO if it ends in .fifo")
	cmd.Flags().Uint64Var(&f.chaos, "chaos", 0, "seed of the faults; 0 means no faults")
	f.json = addJSONFlag(cmd)
	cmd.AddCommand(newDevSQSSend())
	return cmd
}

// badDay are the faults of --chaos.
var badDay = sqstest.Rates{Duplicate: 0.05, LoseDelete: 0.03, LoseReceive: 0.01, Error: 0.01, Throttle: 0.01, EntryError: 0.01,
	Fewer: 0.2, MaxLatency: 20 * time.Millisecond, Reorder: true, AbandonedPolls: true}

func (f devSQSFlags) run(cmd *cobra.Command) (err error) {
	if err := loopbackAddress(cmd, f.listen, devSQSAddress, "nothing is authenticated, so other machines must not reach it"); err != nil {
		return err
	}
	var options sqstest.Options
	if f.chaos != 0 {
		options.Faults = sqstest.Chaos(f.chaos, badDay)
	}
	listener, err := sqstest.New(options).StartAt(f.listen)
	if err != nil {
		return failed(cmd, err, "choose another address with --listen, as in --listen 127.0.0.1:0")
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	made, err := f.create(cmd, listener.URL)
	if err != nil {
		return err
	}
	if err := f.announce(cmd, listener.URL, made); err != nil {
		return err
	}
	<-cmd.Context().Done()
	progress(cmd)("stopping; its queues are deleted")
	return nil
}

// create creates the queues through the protocol, like any client.
func (f devSQSFlags) create(cmd *cobra.Command, endpoint string) ([]string, error) {
	client := devClient(endpoint)
	made := []string{}
	for _, name := range f.queues {
		in := &awssqs.CreateQueueInput{QueueName: &name}
		if strings.HasSuffix(name, ".fifo") {
			in.Attributes = map[string]string{"FifoQueue": "true"}
		}
		out, err := client.CreateQueue(cmd.Context(), in)
		if err != nil {
			return nil, failed(cmd, fmt.Errorf("--queue %s: %w", name, err), "see: "+cmd.CommandPath()+" --help")
		}
		made = append(made, *out.QueueUrl)
	}
	return made, nil
}

// queueFlag is the flag --queue. Invalid names are refused while flags are parsed, before anything
// starts.
type queueFlag []string

// queueName matches the names that CreateQueue accepts, at most 80 characters including the suffix.
var queueName = regexp.MustCompile(`^([a-zA-Z0-9_-]{1,80}|[a-zA-Z0-9_-]{1,75}\.fifo)$`)

// Set adds a queue.
func (all *queueFlag) Set(name string) error {
	if !queueName.MatchString(name) {
		return errors.New("is not a queue name, which has 1 to 80 letters, digits, hyphens and underscores, and may end in .fifo")
	}
	*all = append(*all, name)
	return nil
}

// Type is the name of the value in the help.
func (*queueFlag) Type() string { return "queue" }

func (all *queueFlag) String() string { return strings.Join(*all, " ") }

// announce prints the endpoint on stdout for programs, and the next steps on stderr for people.
func (f devSQSFlags) announce(cmd *cobra.Command, endpoint string, made []string) error {
	say := progress(cmd)
	say("SQS is running in memory at " + endpoint + "; Ctrl-C stops it")
	say("in another shell: export AWS_ENDPOINT_URL=" + endpoint + " AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any")
	for _, url := range made {
		say("queue " + url)
	}
	if len(made) > 0 {
		say("and there: pawl dev sqs send --queue " + path.Base(made[0]) + " --key order-17 --payload '{\"id\":\"order-17\",\"cents\":1250}'")
	}
	return printOne(cmd, *f.json, devQueue{URL: endpoint, Queues: made}, endpoint)
}
