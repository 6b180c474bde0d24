//go:build proof

package main

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

// patience limits the duration of checks run here.
const patience = time.Minute

// Other SQS servers keep the same promises, except for the differences listed on the page. A listed
// difference must occur as listed, so that the list stays current.
func TestOthers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(context.Context, brokers.Options) (*brokers.Server, error){
		"ElasticMQ": brokers.ElasticMQ, "moto": brokers.Moto, "LocalStack": brokers.LocalStack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := start(t.Context(), brokers.Options{Log: func(line string) { t.Log(line) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Stop() })
			differ := differencesOf(t, name)
			client := clientOf(nil, "http://"+s.Addr(), 3)
			slots := make(chan struct{}, 16) // checks mostly wait
			var running sync.WaitGroup
			for _, c := range all {
				d, listed := differ[c.name]
				if c.takes > patience || listed && d.wrong == "" {
					continue
				}
				slots <- struct{}{}
				running.Go(func() {
					defer func() { <-slots }()
					if wrong := tryAs(t.Context(), client, c, d); wrong != "" {
						t.Errorf("%s: %s", c.name, wrong)
					}
				})
			}
			running.Wait()
		})
	}
}

// tryAs runs a check that must pass, or fail as listed. On a busy machine a check of time may fail,
// so it is retried.
func tryAs(ctx context.Context, client *sqs.Client, c check, d difference) string {
	var said []string
	for range 3 {
		wrong := c.run(ctx, client, fmt.Sprintf("check-%d", time.Now().UnixNano()))
		if d.wrong != "" && wrong != "" && regexp.MustCompile(d.wrong).MatchString(wrong) || d.wrong == "" && wrong == "" {
			return ""
		}
		said = append(said, wrong)
	}
	if d.wrong != "" {
		return fmt.Sprintf("the page says %q. The check is to say %q, and says %q", d.does, d.wrong, said)
	}
	return fmt.Sprintf("%s: %q", c.says, said)
}

// All checks but the longest pass in real time.
func TestOverLoopback_Timed(t *testing.T) {
	t.Parallel()
	overLoopback(t, "")
}
