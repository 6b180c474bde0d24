package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

func clientOf(h aws.HTTPClient, endpoint string, retries int) *sqs.Client {
	return sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: h, RetryMaxAttempts: retries,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")})
}

// All checks pass, including those of hours, on virtual time and without a socket.
func TestInProcess(t *testing.T) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if wrong := c.run(t.Context(), clientOf(sqstest.New(sqstest.Options{}), "http://sqs.test", 3), "check"); wrong != "" {
					t.Error(wrong)
				}
			})
		})
	}
}

// untimed matches checks that pass on a machine of any speed, and those skipped for their length.
// The others run on virtual time in TestInProcess, and in real time with the tag proof.
const untimed = `^(queue/(missing|create-again|attributes|counts)|message/(attributes|system-attributes|group-on-standard|size|characters)|batch/.*|` +
	`fifo/(order|group-required|name|dlq-type|deduplication-interval)|delete/twice|visibility/twelve-hours|retention)$`

// The program runs over loopback in real time. The test checks its output and its exit code.
func TestOverLoopback(t *testing.T) {
	t.Parallel()
	overLoopback(t, untimed)
}

// overLoopback runs the program with the checks whose names match.
func overLoopback(t *testing.T, only string) {
	l, err := sqstest.New(sqstest.Options{}).Start()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stdout, stderr bytes.Buffer
	exit := run(t.Context(), []string{"--endpoint", l.URL, "--parallel", "32", "--run", only}, &stdout, &stderr)
	if exit != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d\n%s%s", exit, stdout.String(), stderr.String())
	}
	slow, tried := 0, 0
	for _, c := range all {
		if !regexp.MustCompile(only).MatchString(c.name) {
			continue
		}
		line := regexp.MustCompile(`(?m)^ok    ` + regexp.QuoteMeta(c.name) + ` `)
		if c.takes > 30*time.Second {
			slow++
			line = regexp.MustCompile(`(?m)^skip  ` + regexp.QuoteMeta(c.name) + ` `)
		} else {
			tried++
		}
		if !line.MatchString(stdout.String()) {
			t.Errorf("no line for %s", c.name)
		}
	}
	if last := fmt.Sprintf("%d kept, 0 broken, 3 skipped\n", tried); !strings.HasSuffix(stdout.String(), last) || slow != 3 || tried < 15 {
		t.Errorf("the last line of\n%s\nwant %s", stdout.String(), last)
	}
}

// Every check fails on a service that answers every call with an error, or never.
func TestChecks_CanFail(t *testing.T) {
	t.Parallel()
	for does, faults := range map[string]sqstest.Faults{
		"refuses":         {Fail: func(sqstest.Call) *sqstest.Error { return sqstest.Throttled() }},
		"does not answer": {Latency: func(sqstest.Call) time.Duration { return 24 * time.Hour }},
	} {
		for _, c := range all {
			synctest.Test(t, func(t *testing.T) {
				if wrong := c.run(t.Context(), clientOf(sqstest.New(sqstest.Options{Faults: faults}), "http://sqs.test", 1), "check"); wrong == "" {
					t.Errorf("%s holds on a service that %s", c.name, does)
				}
			})
		}
	}
}

// Checks fail under the fault that breaks only their promise.
func TestChecks_NoticeTheirFault(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]sqstest.Faults{
		"message/round-trip": {LoseDelete: func(sqstest.Arrival) bool { return true }},
		"pollers/none-lost":  {Duplicate: func(a sqstest.Arrival) bool { return a.Number == 77 }},
		"poll/waits": {Latency: func(c sqstest.Call) time.Duration {
			if c.Op == "ReceiveMessage" {
				return 5 * time.Second
			}
			return 0
		}},
		"fifo/order":   {Fewer: func(sqstest.Call, int) int { return 1 }},
		"batch/delete": {FailEntry: func(_ sqstest.Call, entry int) *sqstest.Error { return sqstest.Internal() }},
	} {
		for _, c := range all {
			if c.name != name {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				if wrong := c.run(t.Context(), clientOf(sqstest.New(sqstest.Options{Faults: faults}), "http://sqs.test", 1), "check"); wrong == "" {
					t.Errorf("%s does not notice", name)
				}
			})
		}
	}
}

// docs/reference/sqs.md lists every check.
func TestChecks_AreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/sqs.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.name] {
			t.Errorf("two checks are called %s", c.name)
		}
		if seen[c.name] = true; !strings.Contains(string(page), "`"+c.name+"`") {
			t.Errorf("docs/reference/sqs.md does not list %s", c.name)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		exit int
		says string
	}{
		{"--help", 0, "--endpoint http://127.0.0.1:9324"},
		{"", 2, "--endpoint is missing"},
		{"--endpoint http://127.0.0.1:1 --run poll/waits", 2, "does not answer as SQS"},
		{"--run nothing-like-it", 2, "no check matches"},
		{"--run (", 2, "--run"},
		{"--endpoint x y", 2, "unknown argument"},
		{"--list --run ^fifo/order$", 0, "a group comes in the order"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var out bytes.Buffer
		if exit := run(ctx, strings.Fields(c.args), &out, &out); exit != c.exit || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit %d, %s", c.args, exit, out.String())
		}
		cancel()
	}
}
