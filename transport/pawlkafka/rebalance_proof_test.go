//go:build proof

package pawlkafka_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

var rebalances = flag.Int("rebalances", 50, "how often a member joins and leaves in the test of rebalances")

// A ledger stands for the database: handlers write outcomes to it before they acknowledge.
type ledger struct {
	mu   sync.Mutex
	done map[int32]map[int64]bool // by partition and offset
}

func (l *ledger) write(d pawl.Delivery, partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done[partition] == nil {
		l.done[partition] = map[int64]bool{}
	}
	l.done[partition][d.Offset] = true
}

// holds reports whether all records before an offset have an outcome.
func (l *ledger) holds(partition int32, before int64) (missing int64, holds bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for offset := range before {
		if !l.done[partition][offset] {
			return offset, false
		}
	}
	return 0, true
}

// Members join, leave and crash while handlers take 0 to 3 s. The committed offset, read every 100
// ms, never passes a record without an outcome. In the end every record has one.
func TestRebalance_CommitNeverPassesAnUnsettledRecord(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]pawlkafka.Config{"classic": {}, "serverside": {ServerSideBalancer: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rebalance(t, cfg)
		})
	}
}

func rebalance(t *testing.T, cfg pawlkafka.Config) {
	const partitions = 6
	at := addr(t)
	topic, group := createTopic(t, at, partitions, nil), unique(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var l = ledger{done: map[int32]map[int64]bool{}}
	var m memberStats

	// Records arrive as long as members join and leave.
	producing, stop := context.WithCancel(context.Background())
	sent := make([]int64, partitions)
	var background sync.WaitGroup
	producer := client(t, at, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	background.Go(func() {
		for n := 0; producing.Err() == nil; n++ {
			p := int32(n % partitions)
			r := keyed(topic, p, fmt.Sprint(n))
			r.Key = []byte(fmt.Sprint("k", n%40))
			if err := producer.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Error(err)
				return
			}
			sent[p]++
			time.Sleep(5 * time.Millisecond)
		}
	})
	// The observer checks the commits.
	admin := kadm.NewClient(client(t, at))
	looks, moves := 0, 0
	observing, blind := context.WithCancel(context.Background())
	var observer sync.WaitGroup
	observer.Go(func() {
		last := map[int32]int64{}
		for observing.Err() == nil {
			all, err := admin.FetchOffsets(observing, group)
			if err == nil {
				looks++
				for _, c := range all.Offsets().Sorted() {
					if missing, holds := l.holds(c.Partition, c.At); !holds {
						t.Errorf("committed is %d of partition %d, but offset %d has no outcome", c.At, c.Partition, missing)
						return
					}
					if c.At > last[c.Partition] {
						moves++
					}
					last[c.Partition] = c.At
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	})

	var live []*member
	join := func() {
		live = append(live, newMember(t, at, group, topic, cfg, &l, rng.Uint64()))
	}
	join()
	revokes := func() (n int64) {
		for _, one := range live {
			n += one.s.Stats().Revoked
		}
		return n + m.Revoked
	}
	for n := 0; n < *rebalances || (revokes() == 0 || m.died == 0) && n < 4**rebalances; n++ {
		if len(live) < 2 || (len(live) < 5 && rng.IntN(2) == 0) {
			join()
		} else {
			i := rng.IntN(len(live))
			one := live[i]
			live = append(live[:i], live[i+1:]...)
			if rng.IntN(3) == 0 {
				m.add(one.die())
			} else {
				m.add(one.leave())
			}
		}
		time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
	}
	stop()
	background.Wait()
	if len(live) == 0 {
		join()
	}
	ended := time.Now().Add(3 * time.Minute)
	for p := range int32(partitions) {
		for {
			if _, holds := l.holds(p, sent[p]); holds {
				break
			}
			if time.Now().After(ended) {
				missing, _ := l.holds(p, sent[p])
				t.Fatalf("offset %d of partition %d never got an outcome; %d were sent to it\n%s", missing, p, sent[p],
					describe(t, at, group, topic, live))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	// If a member died between its outcome and its commit, the next owner receives the record
	// again.
	for p, n := range sent {
		offset := int64(-1)
		for ended := time.Now().Add(3 * time.Minute); offset != n; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(ended) {
				t.Fatalf("committed is %d of partition %d, but all %d have an outcome\n%s", offset, p, n, describe(t, at, group, topic, live))
			}
			offset, _ = committed(t, admin, group, topic, int32(p))
		}
	}
	for _, one := range live {
		m.add(one.leave())
	}
	blind()
	observer.Wait()
	var total int64
	for p, n := range sent {
		total += n
		if offset, _ := committed(t, admin, group, topic, int32(p)); offset != n {
			t.Errorf("committed is %d of partition %d in the end, want %d", offset, p, n)
		}
	}
	t.Logf("%d records, %d looks, %d moves of a commit; %+v", total, looks, moves, m)
	if m.Revoked == 0 || m.Lost+m.died == 0 || moves == 0 {
		t.Error("the attack did not take place")
	}
}

// describe returns the state of the cluster and of each live member, for a failure message.
func describe(t *testing.T, at, group, topic string, live []*member) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var to strings.Builder
	admin := kadm.NewClient(client(t, at))
	described, err := admin.DescribeGroups(ctx, group)
	fmt.Fprintf(&to, "the group: %v\n", err)
	for _, g := range described {
		fmt.Fprintf(&to, "  state %s, protocol %s/%s, coordinator %d, error %v\n", g.State, g.ProtocolType, g.Protocol, g.Coordinator.NodeID, g.Err)
		for _, m := range g.Members {
			assigned, _ := m.Assigned.AsConsumer()
			fmt.Fprintf(&to, "  member %s of %s: %+v\n", m.MemberID, m.ClientHost, assigned)
		}
	}
	commits, err := admin.FetchOffsets(ctx, group)
	fmt.Fprintf(&to, "the commits: %v\n", err)
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		fmt.Fprintf(&to, "the ends: %v\n", err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		c, _ := commits.Lookup(topic, end.Partition)
		fmt.Fprintf(&to, "  %s/%d: committed %d %s, end %d, error %v\n", topic, end.Partition, c.At, c.Metadata, end.Offset, end.Err)
	})
	for i, one := range live {
		fmt.Fprintf(&to, "live %d: %+v\n  last error of a Receive: %v\n  %s", i, one.s.Stats(), one.lastError(), pawlkafka.Describe(one.s))
		fmt.Fprintf(&to, "  the last lines of its client:\n%s", one.log.text())
	}
	return to.String()
}

// A diary keeps the last 100 log lines of a client.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (*diary) Level() kgo.LogLevel { return kgo.LogLevelInfo }

func (d *diary) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == 100 {
		d.lines = append(d.lines[:0], d.lines[1:]...)
	}
	d.lines = append(d.lines, fmt.Sprint("    ", time.Now().Format("15:04:05.000 "), level, " ", msg, " ", keyvals, "\n"))
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "")
}

// One key has records in two partitions, and both are received at once. One partition moves before
// they are handled. The member that keeps the other partition still handles its record.
func TestRebalance_OneKeyInTwoPartitions(t *testing.T) {
	t.Parallel()
	at := addr(t)
	topic, group := createTopic(t, at, 2, nil), unique(t)
	records := []*kgo.Record{keyed(topic, 0, "0"), keyed(topic, 1, "1")}
	for _, r := range records {
		r.Key = []byte("one")
	}
	produce(t, at, records...)
	a := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	ds := get(t, a, 2)
	b := open(t, quick(at), group, []string{topic}, pawlkafka.Config{})
	moved := get(t, b, 1)[0]
	slices.SortFunc(ds, func(x, y pawl.Delivery) int { // the moved one first
		return cmp.Compare(len(strings.TrimPrefix(x.Log, moved.Log)), len(strings.TrimPrefix(y.Log, moved.Log)))
	})
	if ds[0].Log != moved.Log || ds[0].OrderingKey != ds[1].OrderingKey {
		t.Fatalf("received %+v, and %+v has moved", ds, moved)
	}
	l := ledger{done: map[int32]map[int64]bool{}}
	one := &member{t: t, s: a, handle: context.Background()}
	one.group(ds, make([]time.Duration, len(ds)), &l)
	again := get(t, a, 1)
	if again[0].Log != ds[1].Log {
		t.Fatalf("received %+v, want %+v, which came after a moved delivery", again, ds[1])
	}
	// One call, with the moved delivery first.
	if err := a.Release(t.Context(), 0, ds[0], again[0]); err != nil {
		t.Fatal(err)
	}
	if again = get(t, a, 1); again[0].Log != ds[1].Log {
		t.Fatalf("received %+v, want %+v, which was released", again, ds[1])
	}
	one.group(again, make([]time.Duration, 1), &l)
	ack(t, b, moved)
	admin := kadm.NewClient(client(t, at))
	for p := range int32(2) {
		await(t, fmt.Sprintf("partition %d is committed", p), func() bool { offset, _ := committed(t, admin, group, topic, p); return offset == 1 })
	}
}

type memberStats struct {
	Received, Revoked, Lost, LostHandles int64
	died                                 int64
}

func (m *memberStats) add(s pawlkafka.Stats, died bool) {
	m.Received += s.Received
	m.Revoked += s.Revoked
	m.Lost += s.Lost
	m.LostHandles += s.LostHandles
	if died {
		m.died++
	}
}

// A member receives and handles as package consumer does: several keys at once, each key in order.
type member struct {
	t      *testing.T
	s      *pawlkafka.Source
	w      *wire
	stop   context.CancelFunc
	work   sync.WaitGroup
	done   chan struct{}
	handle context.Context
	kill   context.CancelFunc
	log    diary

	mu  sync.Mutex
	err error // error of the last failed Receive
}

func (m *member) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func newMember(t *testing.T, at, group, topic string, cfg pawlkafka.Config, l *ledger, seed uint64) *member {
	w := &wire{}
	one := &member{t: t, w: w, done: make(chan struct{})}
	one.s = open(t, append(quick(at), kgo.Dialer(w.dial), kgo.SessionTimeout(3*time.Second), kgo.WithLogger(&one.log)), group, []string{topic}, cfg)
	var receiving context.Context
	receiving, one.stop = context.WithCancel(context.Background())
	one.handle, one.kill = context.WithCancel(context.Background())
	rng := rand.New(rand.NewPCG(seed, 1))
	slots := make(chan struct{}, 8)
	go func() {
		defer close(one.done)
		for receiving.Err() == nil {
			ds, err := one.s.Receive(receiving, 20)
			if err != nil {
				one.mu.Lock()
				one.err = err
				one.mu.Unlock()
				time.Sleep(20 * time.Millisecond)
			}
			groups := map[string][]pawl.Delivery{}
			for _, d := range ds {
				groups[d.OrderingKey] = append(groups[d.OrderingKey], d)
			}
			for _, group := range groups {
				took := make([]time.Duration, len(group))
				for i := range took {
					if rng.IntN(40) == 0 {
						took[i] = time.Duration(rng.IntN(3000)) * time.Millisecond
					}
				}
				slots <- struct{}{}
				one.work.Go(func() {
					one.group(group, took, l)
					<-slots
				})
			}
		}
	}()
	return one
}

// group handles deliveries of one ordering key as package consumer does. A key may be in several
// partitions, so deliveries after a lost one may still be held. group releases them; otherwise the
// source keeps them as handed out forever.
func (m *member) group(ds []pawl.Delivery, took []time.Duration, l *ledger) {
	for i, d := range ds {
		if !m.s.StillHeld(d) {
			held := slices.DeleteFunc(slices.Clone(ds[i+1:]), func(d pawl.Delivery) bool { return !m.s.StillHeld(d) })
			_ = m.s.Release(context.Background(), 0, held...)
			return
		}
		select {
		case <-time.After(took[i]):
		case <-m.handle.Done():
			return // die was called
		}
		var partition int32
		fmt.Sscan(d.Log[len(d.Log)-1:], &partition)
		l.write(d, partition)
		_ = m.s.Ack(context.Background(), receipts(d)...)
	}
}

func (m *member) leave() (pawlkafka.Stats, bool) {
	m.stop()
	<-m.done
	m.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := m.s.Finish(ctx); err != nil {
		m.t.Logf("finish: %v", err)
	}
	return m.s.Stats(), false
}

func (m *member) die() (pawlkafka.Stats, bool) {
	m.w.crash()
	m.kill()
	m.stop()
	<-m.done
	m.work.Wait()
	return m.s.Stats(), true
}
