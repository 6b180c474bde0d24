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

// patience is how long a check may take by its nature to be tried here.
const patience = time.Minute

// The SQS of others keeps the same promises, but for the differences that the page lists. What is listed must differ as listed, so a difference that
// is gone is taken off the list.
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
			slots := make(chan struct{}, 16) // they wait more than they work
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

// tryAs tries a check that is to pass, or to differ as listed. On a machine that is busy elsewhere a check of time can fail, so it is tried again.
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

// All checks but the longest, in real time.
func TestOverLoopback_Timed(t *testing.T) {
	t.Parallel()
	overLoopback(t, "")
}
