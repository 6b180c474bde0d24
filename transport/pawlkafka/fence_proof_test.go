//go:build proof

package pawlkafka_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlkafka"
)

// heartbeats counts the heartbeat responses of one client.
type heartbeats struct{ atomic.Int64 }

func (h *heartbeats) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == (&kmsg.HeartbeatRequest{}).Key() && err == nil {
		h.Add(1)
	}
}

func (h *heartbeats) OnBrokerWrite(kgo.BrokerMetadata, int16, int, time.Duration, time.Duration, error) {
}
func (h *heartbeats) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {}

// A fenced group has one partition of ten records. Member a received all ten, settled two, and lost
// its membership. It learns that from its next commit, because no heartbeat comes earlier. Member b
// received the other eight, and settled some of them.
type fenced struct {
	at, topic, group string
	admin            *kadm.Client
	a, b             *pawlkafka.Source
	as               []pawl.Delivery // deliveries that a received and did not settle
}

func fence(t *testing.T, settles int) *fenced {
	t.Helper()
	f := &fenced{at: addr(t)}
	f.topic, f.group = createTopic(t, f.at, 1, nil), unique(t)
	f.admin = kadm.NewClient(client(t, f.at))
	for n := range 10 {
		produce(t, f.at, keyed(f.topic, 0, fmt.Sprint(n)))
	}
	beats := &heartbeats{}
	f.a = open(t, append(quick(f.at), kgo.SessionTimeout(10*time.Minute), kgo.HeartbeatInterval(9*time.Minute), kgo.WithHooks(beats)), f.group,
		[]string{f.topic}, pawlkafka.Config{})
	ds := get(t, f.a, 10)
	ack(t, f.a, ds[:2]...)
	f.as = ds[2:]
	await(t, "two are committed", func() bool { return f.committed(t) == 2 })
	await(t, "the one early heartbeat of a session is answered", func() bool { return beats.Load() > 0 })
	f.evict(t)
	f.b = open(t, quick(f.at), f.group, []string{f.topic}, pawlkafka.Config{})
	ack(t, f.b, get(t, f.b, 8)[:settles]...)
	await(t, "what b has settled is committed", func() bool { return f.committed(t) == int64(2+settles) })
	return f
}

// evict removes the only member, as a coordinator does when its session expires.
func (f *fenced) evict(t *testing.T) {
	t.Helper()
	all, err := f.admin.DescribeGroups(t.Context(), f.group)
	if err != nil || len(all[f.group].Members) != 1 {
		t.Fatalf("the group is %+v, %v", all, err)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = f.group
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID = all[f.group].Members[0].MemberID
	req.Members = append(req.Members, one)
	resp, err := req.RequestWith(t.Context(), client(t, f.at))
	if err != nil || kerr.ErrorForCode(resp.ErrorCode) != nil || kerr.ErrorForCode(resp.Members[0].ErrorCode) != nil {
		t.Fatalf("%+v, %v", resp, err)
	}
}

func (f *fenced) committed(t *testing.T) int64 {
	t.Helper()
	offset, _ := committed(t, f.admin, f.group, f.topic, 0)
	return offset
}

// A member that learns late of its lost membership commits nothing, which would rewind the next
// owner.
func TestFenced_CommitsNothingForTheNextOwner(t *testing.T) {
	t.Parallel()
	f := fence(t, 8)
	ack(t, f.a, f.as[0])
	await(t, "a has lost b's partition", func() bool { return f.a.Stats().Partitions == 0 })
	if f.a.StillHeld(f.as[1]) {
		t.Error("a still holds a delivery of b's partition")
	}
	if st := f.a.Stats(); st.Lost != 1 || st.Revoked != 0 {
		t.Errorf("a lost its partition and counts %+v", st)
	}
	if now := f.committed(t); now != 10 {
		t.Errorf("committed is %d, and was 10", now)
	}
	produce(t, f.at, keyed(f.topic, 0, "10")) // b still owns the partition
	ack(t, f.b, get(t, f.b, 1)...)
	await(t, "the next record is committed", func() bool { return f.committed(t) == 11 })
}

// A member rejoined and got the partition again. It continues at the commit, because another member
// owned the partition in between.
func TestFenced_GoesOnAtTheCommit(t *testing.T) {
	t.Parallel()
	f := fence(t, 6)
	finish(f.b)
	before := f.a.Stats().Assigned
	ack(t, f.a, f.as[0])
	await(t, "a has the partition again", func() bool { return f.a.Stats().Assigned > before })
	if now := f.committed(t); now != 8 {
		t.Errorf("committed is %d, and was 8", now)
	}
	if f.a.StillHeld(f.as[1]) {
		t.Error("a still holds a delivery of its earlier membership")
	}
	produce(t, f.at, keyed(f.topic, 0, "10"))
	ds := get(t, f.a, 3)
	if got := keysOf(ds); got != "8 9 10" {
		t.Errorf("received %s, and the commit was 8", got)
	}
	ack(t, f.a, ds...)
	await(t, "all are committed", func() bool { return f.committed(t) == 11 })
}
