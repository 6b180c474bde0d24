// Command conformance checks an SQS endpoint against the promises of Amazon SQS, one check each:
//
//	go run ./transport/pawlsqs/sqstest/conformance --endpoint http://127.0.0.1:9324
//
// This project checks its own simulator with it; use it for another one, or for AWS. It creates
// queues whose names begin with "pawl-conformance-" and deletes them. This project did not run it
// against a real AWS account. If a check fails there, the check is wrong; please report it.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

const usage = `Tries the promises of Amazon SQS on an endpoint. Exit code 0: all kept; 1: some broken; 2: not tried.

  go run ./transport/pawlsqs/sqstest/conformance --endpoint http://127.0.0.1:9324

Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without them any are used, which will
do for local endpoints. At AWS it costs a few thousand requests; the IAM actions needed are those named by the checks.

`

// all holds the checks, grouped by the first part of their names.
var all = slices.Concat(queueChecks, messageChecks, timeChecks, fifoChecks)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	endpoint, region, only string
	patience               time.Duration
	parallel               int
	list                   bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int) {
	var o options
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.endpoint, "endpoint", "", "`URL` of the SQS to try (required)")
	flags.StringVar(&o.region, "region", "us-east-1", "region to sign for")
	flags.StringVar(&o.only, "run", "", "try only checks whose name matches this regular `expression`")
	flags.DurationVar(&o.patience, "patience", 30*time.Second, "skip checks that take longer by their nature")
	flags.IntVar(&o.parallel, "parallel", 8, "checks at once")
	flags.BoolVar(&o.list, "list", false, "print the checks and try none")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	only, err := regexp.Compile(o.only)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "--run: %v\n", err)
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "unknown argument %q; see --help\n", flags.Arg(0))
		return 2
	case o.parallel < 1:
		fmt.Fprintln(stderr, "--parallel must be at least 1")
		return 2
	}
	checks := slices.DeleteFunc(slices.Clone(all), func(c check) bool { return !only.MatchString(c.name) })
	if len(checks) == 0 {
		fmt.Fprintf(stderr, "no check matches %q; --list names them\n", o.only)
		return 2
	}
	if o.list {
		for _, c := range checks {
			fmt.Fprintf(stdout, "%-30s %s\n", c.name, c.says)
		}
		return 0
	}
	if o.endpoint == "" {
		fmt.Fprintln(stderr, "--endpoint is missing; see --help")
		return 2
	}
	client := sqs.New(sqs.Options{Region: o.region, BaseEndpoint: &o.endpoint, Credentials: keys()})
	if _, err := client.ListQueues(ctx, &sqs.ListQueuesInput{}); err != nil {
		fmt.Fprintf(stderr, "%s does not answer as SQS: %s\n", o.endpoint, oneLine(err))
		return 2
	}
	return try(ctx, client, checks, o, stdout)
}

// keys returns the credentials of the environment, or placeholders.
func keys() aws.CredentialsProvider {
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		id, secret = "any", "any"
	}
	return credentials.NewStaticCredentialsProvider(id, secret, os.Getenv("AWS_SESSION_TOKEN"))
}

// try runs the checks and prints a line for each as it ends.
func try(ctx context.Context, client *sqs.Client, checks []check, o options, stdout io.Writer) (exit int) {
	prefix := "pawl-conformance-" + strings.ToLower(rand.Text()[:8])
	var tried []check
	for _, c := range checks {
		if c.takes > o.patience {
			fmt.Fprintf(stdout, "skip  %-30s takes %v; --patience %v tries it\n", c.name, c.takes, 2*c.takes)
		} else {
			tried = append(tried, c)
		}
	}
	var mu sync.Mutex // guards stdout and the counts while checks run
	var kept, broken int
	var running sync.WaitGroup
	slots := make(chan struct{}, o.parallel)
	for _, c := range tried {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			start := time.Now()
			wrong := c.run(ctx, client, prefix)
			mu.Lock()
			defer mu.Unlock()
			if wrong == "" {
				kept++
				fmt.Fprintf(stdout, "ok    %-30s %s (%.1f s)\n", c.name, c.says, time.Since(start).Seconds())
				return
			}
			broken++
			fmt.Fprintf(stdout, "FAIL  %-30s %s\n      %s\n", c.name, c.says, wrong)
		})
	}
	running.Wait()
	fmt.Fprintf(stdout, "%d kept, %d broken, %d skipped\n", kept, broken, len(checks)-len(tried))
	if broken > 0 {
		return 1
	}
	return 0
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
