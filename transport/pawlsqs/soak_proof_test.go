//go:build proof

package pawlsqs_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

var (
	soakMessages = flag.Int("soak.messages", 200, "messages of each soak; the long one has 20000")
	soakKills    = flag.Int("soak.kills", 6, "SIGKILLs of each soak; the long one has 20")
	soakFailures = flag.Float64("soak.failures", 0.02, "share of deliveries that fail at first")
	soakSeed     = flag.Uint64("soak.seed", rand.Uint64(), "decides faults, order and kills")
	deploys      = flag.Int("deploys", 10, "SIGTERMs of each deploy drill; the long one has 20")
)

const (
	copies    = 3 // of each message
	consumers = 3
	lines     = 40 // message groups
)

// Each message is sent three times, unordered unless the queue keeps order. Handlers fail, deletes
// and responses are lost, polls outlive their clients, and consumers are killed. Each message takes
// effect once and none is lost. FIFO queues keep the order of each group, except with triggers,
// which promise none.
func TestSoak(t *testing.T) {
	for _, c := range [][2]string{{"inline", "soak"}, {"inline", "soak.fifo"}, {"store", "soak"}, {"store", "soak.fifo"},
		{"trigger", "soak"}, {"trigger", "soak.fifo"}, {"batch", "soak"}} {
		mode, queue := c[0], c[1]
		t.Run(mode+" "+queue, func(t *testing.T) {
			t.Parallel()
			s := newSoak(t, mode, queue, *soakFailures, sqstest.Rates{Duplicate: .05, LoseDelete: .03, LoseReceive: .005, Error: .005, EntryError: .01,
				Fewer: .2, Reorder: true, AbandonedPolls: true})
			s.play()
			s.judge()
			if stats := s.server.Stats(queue); stats.Redelivered == 0 || stats.LostDeletes == 0 {
				t.Errorf("the queue behaved too well: %+v", stats)
			}
		})
	}
}

// The only consumer gets SIGTERM again and again under load. It exits without error, within a
// poll's wait and the time of its handlers. The visibility timeout is a minute, yet no message
// stays hidden longer than a poll's wait after the exit. A copy of a message being handled was
// released for 1 to 2 s. In the end each message took effect once.
func TestDeployDrill(t *testing.T) {
	for _, c := range [][2]string{{"inline", "drill"}, {"inline", "drill.fifo"}, {"store", "drill"}, {"store", "drill.fifo"}} {
		mode, queue := c[0], c[1]
		t.Run(mode+" "+queue, func(t *testing.T) {
			t.Parallel()
			s := newSoak(t, mode, queue, 0, sqstest.Rates{AbandonedPolls: true, Fewer: .3})
			s.consumer.Take, s.consumer.Visibility = 2*time.Millisecond, time.Minute
			units := s.messages()
			for n := range *deploys {
				s.send(units[len(units)*n / *deploys : len(units)*(n+1) / *deploys])
				c := startConsumer(t, s.consumer)
				c.await(t)
				had := s.effects()
				s.until("the consumer works", func() bool { return s.effects() > had })
				if took := c.terminate(t); took > consumerWait+5*time.Second {
					t.Errorf("deploy %d took %v", n, took)
				}
				for end := time.Now(); s.server.Stats(queue).InFlight != 0; time.Sleep(time.Millisecond) {
					if time.Since(end) > consumerWait {
						t.Fatalf("deploy %d stranded messages: %+v", n, s.server.Stats(queue))
					}
				}
			}
			s.finish()
			s.judge()
		})
	}
}

// A soak is one queue, one database and the processes between them.
type soak struct {
	*testing.T
	queue    string
	fifo     bool
	server   *sqstest.Server // nil if the queue is on another server
	client   *awssqs.Client
	url      string
	pool     *pgxpool.Pool
	consumer assignment
	random   *rand.Rand
	sent     int // units, copies included
}

func newSoak(t *testing.T, mode, queue string, failures float64, rates sqstest.Rates) *soak {
	t.Helper()
	server := sqstest.New(sqstest.Options{Faults: sqstest.Chaos(*soakSeed, rates)})
	l, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := newSoakAt(t, l.URL, mode, queue, failures)
	s.server = server
	return s
}

// newSoakAt creates the queue at an endpoint.
func newSoakAt(t *testing.T, endpoint, mode, queue string, failures float64) *soak {
	t.Helper()
	t.Logf("seed %d", *soakSeed)
	client := newClient(nil, endpoint)
	s := &soak{T: t, queue: queue, fifo: strings.HasSuffix(queue, ".fifo"), client: client, url: createQueue(t, client, queue),
		random:   rand.New(rand.NewPCG(*soakSeed, 1)),
		consumer: assignment{URL: pawltest.URL(t, effects), Endpoint: endpoint, Queue: queue, Mode: mode, Visibility: time.Second, Failures: failures}}
	var err error
	if s.pool, err = pgxpool.New(t.Context(), s.consumer.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	return s
}

// messages returns all units with their copies. A copy never precedes the original, because a
// producer resends only what it has sent.
func (s *soak) messages() []unit {
	all := make([]unit, 0, *soakMessages*copies)
	for n := range *soakMessages {
		u := unit{Line: fmt.Sprintf("line-%d", n%lines), Number: n / lines}
		all = append(all, u)
		for range copies - 1 {
			again := n - lines*s.random.IntN(n/lines+1) // of the same line, this or an earlier one
			all = append(all, unit{Line: u.Line, Number: again / lines})
		}
	}
	if !s.fifo {
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}

// send sends units in the order of each line, each as its own message. In a FIFO queue each has its
// own deduplication id, like a producer's retry after five minutes.
func (s *soak) send(units []unit) {
	s.Helper()
	if s.consumer.Mode == "trigger" { // producers write the rows first
		keys := make([]string, len(units))
		for i, u := range units {
			keys[i] = u.key()
		}
		if _, err := s.pool.Exec(s.Context(), "insert into task (key) select unnest($1::text[]) on conflict do nothing", keys); err != nil {
			s.Fatal(err)
		}
	}
	for from := 0; from < len(units); from += 10 {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &s.url}
		for i, u := range units[from:min(from+10, len(units))] {
			s.sent++
			e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(string(u.body())),
				MessageAttributes: map[string]types.MessageAttributeValue{"Idempotency-Key": {DataType: aws.String("String"), StringValue: aws.String(u.key())}}}
			if s.fifo {
				e.MessageGroupId, e.MessageDeduplicationId = &u.Line, aws.String(fmt.Sprint(s.sent))
			}
			in.Entries = append(in.Entries, e)
		}
		s.sendBatch(in)
	}
}

// sendBatch repeats the batch until all entries are accepted. Entries accepted before become extra
// copies, or a FIFO queue recognises their ids. A batch holds at most one new unit of a line, so
// that none can overtake it.
func (s *soak) sendBatch(in *awssqs.SendMessageBatchInput) {
	s.Helper()
	for range 100 {
		if out, err := s.client.SendMessageBatch(s.Context(), in); err == nil && len(out.Failed) == 0 {
			return
		}
	}
	s.Fatal("a batch was not sent after 100 tries")
}

func (s *soak) effects() (n int) {
	s.Helper()
	if err := s.pool.QueryRow(context.WithoutCancel(s.Context()), "select count(*) from effect").Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// open counts all messages in the queue.
func (s *soak) open() (n int) {
	if s.server != nil {
		stats := s.server.Stats(s.queue)
		return stats.Ready + stats.Delayed + stats.InFlight
	}
	counts := []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible}
	out, err := s.client.GetQueueAttributes(s.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &s.url, AttributeNames: counts})
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range counts {
		count, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			s.Fatalf("%s: %v", name, err)
		}
		n += count
	}
	return n
}

// state is the server's view of the queue.
func (s *soak) state() string {
	if s.server == nil {
		return fmt.Sprintf("%d open", s.open())
	}
	return fmt.Sprintf("%+v", s.server.Stats(s.queue))
}

func (s *soak) until(what string, reached func() bool) {
	s.Helper()
	patience := 2*time.Minute + time.Duration(*soakMessages)*10*time.Millisecond
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			var left *string
			_ = s.pool.QueryRow(s.Context(), `select string_agg((to_jsonb(j) - 'payload' - 'headers')::text, e'\n') from
				(select j.*, w.seen_at, w.lease from pawl.job as j left join pawl.worker as w on w.id = j.claimed_by limit 10) as j`).Scan(&left)
			if left == nil {
				left = new(string)
			}
			s.Fatalf("not reached in %v: %s; %d effects, server %s; jobs left:\n%s", patience, what, s.effects(), s.state(), *left)
		}
	}
}

// play sends in portions and kills consumers meanwhile, at random and before and after every step.
func (s *soak) play() {
	s.Helper()
	units := s.messages()
	crew := make([]*process, consumers)
	for i := range crew {
		crew[i] = startConsumer(s.T, s.consumer)
	}
	points := append([]string{""}, modes[s.consumer.Mode].points...)
	for n := range *soakKills {
		from, to := len(units)*n / *soakKills, len(units)*(n+1) / *soakKills
		s.send(units[from:to])
		victim := n % consumers
		crew[victim].await(s.T)
		patience := time.Duration(s.random.IntN(100)) * time.Millisecond
		if crew[victim].doomed {
			patience = 500 * time.Millisecond // it kills itself at its crash point
		}
		select {
		case <-crew[victim].ended:
		case <-time.After(patience):
			_ = crew[victim].cmd.Process.Kill()
			<-crew[victim].ended
		}
		// Its replacement dies at a crash point, or is killed at a random moment.
		next := s.consumer
		if point := points[s.random.IntN(len(points))]; point != "" && n+consumers < *soakKills {
			next.Faults = fmt.Sprintf("%s=kill@%d", point, s.random.IntN(20))
		}
		crew[victim] = startConsumer(s.T, next)
		crew[victim].doomed = next.Faults != ""
	}
	s.finish(crew...)
}

// finish lets consumers work until all is done, and stops them.
func (s *soak) finish(crew ...*process) {
	s.Helper()
	if len(crew) == 0 {
		crew = append(crew, startConsumer(s.T, s.consumer))
	}
	s.until("everything is settled", func() bool {
		for _, c := range crew {
			c.lives(s.T)
		}
		if s.open() > 0 {
			return false
		}
		var left int
		err := s.pool.QueryRow(s.Context(), `select (select count(*) from pawl.job as j where j.status <> 'dead_letter')
			+ (select count(*) from task as t where t.status <> 'completed')`).Scan(&left)
		if err != nil {
			s.Fatal(err)
		}
		return left == 0
	})
	for _, c := range crew {
		c.await(s.T)
		c.terminate(s.T)
	}
}

// judge checks the rows alone: each unit once, none missing, and in a FIFO queue each line in
// order.
func (s *soak) judge() {
	s.Helper()
	var all, distinct, disorder, letters int
	err := s.pool.QueryRow(s.Context(), `
select count(*), count(distinct e.key),
       (select count(*) from (select i.number - lag(i.number, 1, -1) over (partition by i.line order by i.id) as step from effect as i) as o
         where o.step <> 1),
       (select count(*) from pawl_v1.dead_letters)
  from effect as e`).Scan(&all, &distinct, &disorder, &letters)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("counted: %s on SQS, %s: %d messages, %d sent, %d kills, %d effects, %d doubled, %d lost, %d out of order", s.queue, s.consumer.Mode, *soakMessages, s.sent, *soakKills, all,
		all-distinct, *soakMessages-distinct, disorder)
	s.Logf("server: %s", s.state())
	if all != *soakMessages || distinct != *soakMessages || letters != 0 {
		s.Errorf("%d effects, %d different, %d dead letters, want %d of each and no letters", all, distinct, letters, *soakMessages)
	}
	if s.fifo && s.consumer.Mode != "trigger" && disorder != 0 {
		s.Errorf("%d effects out of the order of their group", disorder)
	}
}
