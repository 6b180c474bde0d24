//go:build proof

package hatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
)

// A verdict counts the errors of a run and measures the time without progress.
type verdict struct {
	acked, answered int
	lostMessages    int // acknowledged without an order
	lostCommands    int // answered without a payment
	doubled         int // keys with two orders, bookings or payments
	// torn counts effects without an inbox or command row, such rows without an effect, and orders
	// without a booking.
	torn     int
	charged  int // bookings of a second attempt, and charged failures
	crashes  int // bookings whose job counts a crash
	suspects int
	most     int           // receives of one message
	slowest  time.Duration // from the first receive of a message to its acknowledgement

	// gapMessages and gapCommands are the longest times without an acknowledgement or an answer.
	gapMessages, gapCommands time.Duration
	outages                  []outage
}

// An outage is a period in which the probe could not commit.
type outage struct {
	lasted              time.Duration
	toMessage, toAnswer time.Duration // from its end to the next acknowledgement, the next answer
}

func (v verdict) String() string {
	text := fmt.Sprintf("%d messages acknowledged, %d commands answered; lost %d + %d, doubled %d, torn %d, charged %d, crashes %d, suspects %d, most receives %d, slowest message %v; longest time without an acknowledgement %v, an answer %v",
		v.acked, v.answered, v.lostMessages, v.lostCommands, v.doubled, v.torn, v.charged, v.crashes, v.suspects, v.most, v.slowest.Round(time.Millisecond), v.gapMessages.Round(time.Millisecond), v.gapCommands.Round(time.Millisecond))
	for _, o := range v.outages {
		text += fmt.Sprintf("; no commit for %v, then first acknowledgement after %v, first answer after %v",
			o.lasted.Round(time.Millisecond), o.toMessage.Round(time.Millisecond), o.toAnswer.Round(time.Millisecond))
	}
	return text
}

// stop shuts the load down, waits until all work is done, and judges it. It ignores times before
// since.
func (l *load) stop(c *cluster, since time.Time) (v verdict) {
	c.Helper()
	stopped := time.Now()
	l.stopSending()
	l.sending.Wait()
	c.until("all messages are acknowledged", func() bool { return l.source.waiting() == 0 })
	c.until("all jobs have ended", func() bool {
		n, err := l.number("select count(*) from pawl.job")
		return err == nil && n == 0
	})
	l.stopWorking()
	l.working.Wait()

	v.acked, v.answered = l.counts()
	v.most, v.slowest = l.source.most, l.source.longest
	v.suspects = int(l.counters.Count(pawl.EventSuspect))
	orders, bookings, payments := l.keys("select o.key from orders as o"), l.keys("select b.key from bookings as b"), l.keys("select p.key from payments as p")
	v.lostMessages, v.lostCommands = missing(l.source.acked, orders), missing(l.answered, payments)
	v.doubled = twice(orders) + twice(bookings) + twice(payments)
	v.torn = missing(set(orders), bookings) + missing(set(bookings), orders) +
		differ(set(orders), l.keys("select i.key from pawl.inbox as i where i.consumer = 'orders'")) +
		differ(set(payments), l.keys("select k.key from pawl.command as k where k.scope = 'payments' and k.status = 'succeeded'"))
	again, err := l.number("select count(*) from bookings as b where b.attempt > 1")
	l.must(err)
	v.charged = again + int(l.counters.Count(pawl.EventRetryable)+l.counters.Count(pawl.EventFailed))
	v.crashes, err = l.number("select count(*) from bookings as b where b.crashes > 0")
	l.must(err)

	v.gapMessages, v.gapCommands = longest(l.source.ackedAt, since), longest(l.answeredAt, since)
	for _, end := range ends(l.writableAt, since) {
		if end.at.After(stopped) {
			break // no work was left to follow it
		}
		v.outages = append(v.outages, outage{lasted: end.lasted, toMessage: next(l.source.ackedAt, end.at), toAnswer: next(l.answeredAt, end.at)})
	}
	return v
}

func (l *load) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *load) number(question string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	return n, conn.QueryRow(ctx, question).Scan(&n)
}

func (l *load) keys(question string) []string {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.url)
	l.must(err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, question)
	l.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	l.must(err)
	return all
}

func set(keys []string) map[string]bool {
	all := make(map[string]bool, len(keys))
	for _, key := range keys {
		all[key] = true
	}
	return all
}

// missing counts the keys that are not among the rows.
func missing(keys map[string]bool, rows []string) (n int) {
	there := set(rows)
	for key := range keys {
		if !there[key] {
			n++
		}
	}
	return n
}

func differ(keys map[string]bool, rows []string) int {
	return missing(keys, rows) + len(set(rows)) - (len(keys) - missing(keys, rows))
}

// twice counts the rows beyond the first of their key.
func twice(rows []string) int { return len(rows) - len(set(rows)) }

// longest returns the longest time between two moments, the second of which is after since.
func longest(at []time.Time, since time.Time) (gap time.Duration) {
	for i := 1; i < len(at); i++ {
		if at[i].After(since) {
			gap = max(gap, at[i].Sub(at[i-1]))
		}
	}
	return gap
}

type gap struct {
	lasted time.Duration
	at     time.Time
}

// isOutage is the shortest time without a commit of the probe that counts as an outage.
const isOutage = 1500 * time.Millisecond

func ends(at []time.Time, since time.Time) (all []gap) {
	for i := 1; i < len(at); i++ {
		if lasted := at[i].Sub(at[i-1]); at[i].After(since) && lasted > isOutage {
			all = append(all, gap{lasted, at[i]})
		}
	}
	return all
}

// next returns how long after a moment the next of these comes, or -1.
func next(moments []time.Time, after time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(moments, after, time.Time.Compare)
	if i == len(moments) {
		return -1
	}
	return moments[i].Sub(after)
}

// away returns the longest outage of the probe.
func (v verdict) away() (longest time.Duration) {
	for _, o := range v.outages {
		longest = max(longest, o.lasted)
	}
	return longest
}

// clean requires that nothing was lost, doubled or torn, and that no healthy work was charged.
func (v verdict) clean(c *cluster) {
	c.Helper()
	v.cleanBut(c, 0)
}

// cleanBut is clean with an exception. Work that was in flight on a silent server, or whose claim
// was cut off, may count as one attempt or one crash each.
func (v verdict) cleanBut(c *cluster, held int) {
	c.Helper()
	var wrong []string
	for name, n := range map[string]int{"lost messages": v.lostMessages, "lost commands": v.lostCommands, "doubled": v.doubled, "torn": v.torn,
		"charged": max(0, v.charged-held), "crashes": max(0, v.crashes-held), "suspects": v.suspects} {
		if n != 0 {
			wrong = append(wrong, fmt.Sprintf("%s %d", name, n))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		c.Errorf("%s: %v", strings.Join(wrong, ", "), v)
	}
	if v.acked == 0 || v.answered == 0 {
		c.Errorf("nothing was done: %v", v)
	}
}
