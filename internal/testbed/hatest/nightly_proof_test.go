//go:build proof

package hatest

import (
	"context"
	"flag"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var partitions = flag.Int("ha.partitions", 10, "how often the nightly run cuts the primary off")

// atNight skips tests that take minutes on a quiet machine.
func atNight(t *testing.T) {
	t.Helper()
	if !*nightly {
		t.Skip("part of the nightly run: -ha.nightly")
	}
}

const (
	longestSwitchover = 5 * time.Second
	switchovers       = 5 // of each kind of URL
	partitionLasts    = 50 * time.Second
	etcdAway          = 40 * time.Second
	onStandby         = 25 * time.Second
	failsOver         = 45 * time.Second // ttl and two rounds of Patroni
	answers           = 15 * time.Second // internal/txn.ReplyLimit
	inHand            = parts * 8        // approximate number of concurrent handlers and claims
	withFailsafe      = time.Second      // the longest time without progress while etcd is away
)

// Each switchover stops the work for at most five seconds, or a second more than Patroni takes.
// Clients connect through HAProxy or with all nodes in the URL.
func TestNightly_Switchovers(t *testing.T) {
	atNight(t)
	for name, s := range map[string]settings{"HAProxy": {haproxy: true}, "multi-host URL": {}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, s)
			for range switchovers {
				v := c.run("switchover, "+name, func(*load) {
					c.switchover()
					c.settle()
				})
				v.clean(c)
				v.follows(c)
				if bound := max(longestSwitchover, v.away()+time.Second); v.gapMessages > bound || v.gapCommands > bound {
					t.Errorf("longer than %v", bound)
				}
			}
			v := c.run("restart of the primary, "+name, func(*load) {
				if err := c.leader().ask("POST", "/restart", struct{}{}); err != nil {
					t.Error(err)
				}
				c.settle()
			})
			v.clean(c)
			v.follows(c)
		})
	}
}

// The primary and its Patroni are killed, so clients are refused.
func TestNightly_Kill(t *testing.T) {
	atNight(t)
	for name, s := range map[string]settings{"HAProxy": {haproxy: true}, "multi-host URL": {}, "multi-host URL, two nodes, ttl 20": {nodes: 2, ttl: 20, loop: 5, resend: 5}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, s)
			v := c.run("primary killed, "+name, func(*load) {
				dead := c.killLeader()
				if s.nodes == 2 { // strict: no commit without a standby
					dead.run(c)
					c.settle()
				}
			})
			v.clean(c)
			v.follows(c)
		})
	}
}

// The primary's machine is silent, so connections hang and no client is refused.
func TestNightly_Silence(t *testing.T) {
	atNight(t)
	c := newCluster(t, settings{})
	v := c.run("primary silent", func(*load) {
		old := c.leader()
		heal := c.silence(old)
		c.until("another leader", func() bool {
			for _, n := range c.others(old) {
				if n.is("primary") {
					return true
				}
			}
			return false
		})
		time.Sleep(partitionLasts)
		heal()
		c.settle()
	})
	v.cleanBut(c, inHand)
	v.follows(c)
	if bound := failsOver + answers; v.slowest > bound {
		t.Errorf("a message waited %v on a silent connection, more than %v", v.slowest, bound)
	}
}

// etcd is away for 40 s. With failsafe_mode the work continues.
func TestNightly_EtcdAway(t *testing.T) {
	atNight(t)
	for name, s := range map[string]settings{"failsafe_mode on": {}, "failsafe_mode off": {noFailsafe: true}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, s)
			v := c.run("etcd away for 40 s, "+name, func(*load) {
				_ = c.etcd.Signal(syscall.SIGSTOP)
				time.Sleep(etcdAway)
				_ = c.etcd.Signal(syscall.SIGCONT)
				c.settle()
			})
			v.clean(c)
			v.follows(c)
			if !s.noFailsafe && (v.gapMessages > withFailsafe || v.gapCommands > withFailsafe) {
				t.Errorf("longer than %v", withFailsafe)
			}
		})
	}
}

// The primary and all clients are partitioned from the standbys and etcd. With a synchronous
// standby, no acknowledged or answered work is lost.
func TestNightly_Partition(t *testing.T) {
	atNight(t)
	c := newCluster(t, settings{})
	for range *partitions {
		v := c.run("partition, synchronous", func(*load) { c.partition() })
		v.clean(c)
		v.follows(c)
	}
}

// With asynchronous standbys, the same partition loses the old primary's commits as a whole:
// effects and memory agree. The guide says so. This run also shows that the judge finds losses.
func TestNightly_PartitionAsynchronous(t *testing.T) {
	atNight(t)
	c := newCluster(t, settings{async: true})
	v := c.run("partition, asynchronous", func(*load) { c.partition() })
	if v.lostMessages == 0 || v.lostCommands == 0 {
		t.Errorf("nothing was lost: the primary was not cut off, or the judge does not detect losses")
	}
	if v.doubled > 0 || v.torn > 0 {
		t.Errorf("doubled %d, torn %d", v.doubled, v.torn)
	}
}

// partition isolates the leader until another node is promoted, and heals the partition.
func (c *cluster) partition() {
	c.Helper()
	old := c.leader()
	if old == nil {
		c.Fatal("there is no leader")
	}
	heal := c.isolate(old)
	time.Sleep(partitionLasts)
	heal()
	c.until("another leader", func() bool { n := c.leader(); return n != nil && n != old })
	c.settle()
}

// All connections reach a standby, as with outdated DNS names.
func TestNightly_AllOnAStandby(t *testing.T) {
	atNight(t)
	c := newCluster(t, settings{})
	var astray atomic.Bool
	standby := c.others(c.leader())[0].clients.port()
	l := startLoad(c, func(_ context.Context, config *pgx.ConnConfig) error {
		if astray.Load() {
			config.Host, config.Port, config.Fallbacks, config.ValidateConnect = "127.0.0.1", uint16(standby), nil, nil
		}
		return nil
	})
	began := time.Now()
	astray.Store(true)
	for _, pool := range l.pools {
		pool.Reset()
	}
	time.Sleep(onStandby)
	astray.Store(false)
	back := time.Now()
	l.goesOn(c)
	v := l.stop(c, began)
	t.Logf("all connections on a standby for %v: %v; first acknowledgement %v after its end, first answer %v", onStandby, v,
		next(l.source.ackedAt, back).Round(time.Millisecond), next(l.answeredAt, back).Round(time.Millisecond))
	v.clean(c)
	if bound := after(onStandby); next(l.source.ackedAt, back) > bound || next(l.answeredAt, back) > bound {
		t.Errorf("progress later than %v", bound)
	}
	if v.most > 2 {
		t.Errorf("a message was received %d times", v.most)
	}
}

// No standby receives WAL, commits wait, and an operator cancels the backends that look stuck.
// PostgreSQL then shows rows that no standby has. The primary is lost, and a standby without those
// rows is promoted. No acknowledged or answered work is missing.
func TestNightly_OperatorCancels(t *testing.T) {
	atNight(t)
	c := newCluster(t, settings{})
	v := c.run("an operator cancels commits that wait, and the primary dies", func(*load) {
		old := c.leader()
		old.peers.freeze()
		cancelled := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			err := old.admin(func(conn *pgx.Conn) error {
				var n int
				err := conn.QueryRow(context.Background(), "select count(pg_cancel_backend(a.pid)) from pg_stat_activity as a where a.wait_event = 'SyncRep'").Scan(&n)
				cancelled += n
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		t.Logf("%d waits were cancelled", cancelled)
		if cancelled == 0 {
			t.Error("no commit waited")
		}
		c.killLeader()
	})
	v.cleanBut(c, inHand)
}

// A frozen forwarder holds the data and closes nothing.
func TestForwarder_Freezes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				b := make([]byte, 1)
				for n, err := conn.Read(b); err == nil; n, err = conn.Read(b) {
					_, _ = conn.Write(b[:n])
				}
			}()
		}
	}()
	f := forward(t, l.Addr().(*net.TCPAddr).Port)
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(f.port()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	echo := func(c string, wait time.Duration) error {
		if _, err := conn.Write([]byte(c)); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := echo("a", time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	if err, is := echo("b", 200*time.Millisecond).(net.Error); !is || !err.Timeout() {
		t.Errorf("while it is frozen: %v", err)
	}
	f.thaw()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}
