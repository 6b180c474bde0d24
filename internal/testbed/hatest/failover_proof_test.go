//go:build proof

package hatest

import (
	"flag"
	"testing"
	"time"
)

var nightly = flag.Bool("ha.nightly", false, "all failures, with Patroni's default times and the bounds of the guide; on a quiet machine")

// after bounds the time from the return of the database to the first effect. A busy machine gets
// more.
func after(lasted time.Duration) time.Duration {
	switch {
	case !*nightly:
		return 15 * time.Second
	case lasted <= 10*time.Second:
		return time.Second
	default:
		return 3 * time.Second
	}
}

// follows requires progress right after the database returns.
func (v verdict) follows(c *cluster) {
	c.Helper()
	for _, o := range v.outages {
		if bound := after(o.lasted); o.toMessage > bound || o.toAnswer > bound || o.toMessage < 0 || o.toAnswer < 0 {
			c.Errorf("after %v without a commit the first acknowledgement came %v after its end, the first answer %v: more than %v",
				o.lasted.Round(time.Millisecond), o.toMessage.Round(time.Millisecond), o.toAnswer.Round(time.Millisecond), bound)
		}
	}
}

// run starts a load on a healthy cluster and calls fail. It returns when the load has continued, is
// done and is judged.
func (c *cluster) run(what string, fail func(l *load)) verdict {
	c.Helper()
	l := startLoad(c, nil)
	began := time.Now()
	fail(l)
	l.goesOn(c)
	v := l.stop(c, began)
	c.Logf("counted: %s: %v", what, v)
	return v
}

// After a planned switchover and after the death of the primary, nothing is lost or doubled, and no
// healthy work is charged.
func TestFailover(t *testing.T) {
	c := newCluster(t, quick)
	v := c.run("switchover", func(*load) {
		c.switchover()
		c.settle()
	})
	v.clean(c)
	v.follows(c)
	v = c.run("primary killed, ttl 20 s", func(*load) { c.killLeader() })
	v.clean(c)
	v.follows(c)
}

// switchover makes another node the leader, as an operator does.
func (c *cluster) switchover() {
	c.Helper()
	from := c.leader()
	if from == nil {
		c.Fatal("there is no leader")
	}
	if err := from.ask("POST", "/switchover", map[string]string{"leader": from.name}); err != nil {
		c.Fatal(err)
	}
	c.until("another leader", func() bool { n := c.leader(); return n != nil && n != from })
}

// killLeader kills the leader and waits for the next one.
func (c *cluster) killLeader() *node {
	c.Helper()
	dead := c.leader()
	if dead == nil {
		c.Fatal("there is no leader")
	}
	dead.kill(c)
	c.until("another leader", func() bool { n := c.leader(); return n != nil && n != dead })
	return dead
}
