//go:build proof

package schedule_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/fault"
	"github.com/pawl-go/pawl/schedule"
)

// The published run is -storm.ticks=1000.
var (
	stormTicks = flag.Int("storm.ticks", 20, "ticks of the interval under keepers that are killed")
	stormEvery = flag.Duration("storm.every", 400*time.Millisecond, "the interval")
	stormSeed  = flag.Uint64("storm.seed", 0, "of the times of death; 0 means a new one")
)

// childEnv holds the configuration of a keeper process as JSON.
const childEnv = "PAWL_TEST_KEEPER"

type order struct {
	URL    string
	Every  time.Duration
	Faults string
}

func (o order) schedule() schedule.Schedule {
	return schedule.Schedule{Name: "s", Queue: "q", Kind: "k", Plan: schedule.Every(o.Every), Missed: schedule.MissedAll}
}

// TestKeeperProcess is the keeper program that the storm starts. It puts its schedule when it
// starts.
func TestKeeperProcess(t *testing.T) {
	var o order
	if text := os.Getenv(childEnv); text == "" {
		return // the storm is what starts it
	} else if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Faults != "" {
		if err := fault.Arm(o.Faults); err != nil {
			t.Fatal(err)
		}
	}
	pool, err := pgxpool.New(t.Context(), o.URL+"&pool_max_conns=2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := schedule.Put(t.Context(), pool, o.schedule()); err != nil {
		t.Fatal(err)
	}
	k, err := schedule.NewKeeper(pool, schedule.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_ = k.Run(t.Context())
}

// T68: three programs with keepers are killed and restarted more often than the interval, at random
// moments and right before and after a tick. No tick is doubled or lost.
func TestT68_KilledMoreOftenThanTheInterval(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-storm.seed=%d", seed)
	o := order{URL: b.url, Every: *stormEvery}
	s := o.schedule()
	s.FirstAt = one[time.Time](b, "select date_trunc('milliseconds', clock_timestamp()) + interval '1 second'")
	if _, err := schedule.Put(t.Context(), b.pool, s); err != nil {
		t.Fatal(err)
	}
	end := s.FirstAt.Add(time.Duration(*stormTicks) * *stormEvery)
	var deaths, atTick atomic.Int64
	var all sync.WaitGroup
	for slot := range uint64(3) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, slot))
			for time.Now().Before(end) {
				victim, life := o, time.Duration(float64(*stormEvery)*(0.3+0.6*random.Float64()))
				switch random.IntN(4) {
				case 0:
					// The process kills itself at its next tick.
					victim.Faults, life = "schedule.tick.before=kill", 20*time.Second
				case 1:
					victim.Faults, life = "schedule.tick.after=kill", 20*time.Second
				}
				if runKeeper(t, victim, life) {
					atTick.Add(1)
				}
				deaths.Add(1)
			}
		})
	}
	all.Wait()
	b.keep(schedule.Config{})
	b.until("what is owed is made", "select s.next_at >= $1 and s.next_at > clock_timestamp() - $2::bigint * interval '1 millisecond' from pawl.schedule as s", end, (*stormEvery).Milliseconds())
	b.exec("select pawl_v1.schedule_pause('s', 'test', 'the end')")
	made := b.grid("s", s.FirstAt, *stormEvery)
	t.Logf("counted: schedules: %d ticks, one each %v, each made once; %d processes killed, %d of them right before or after a tick", made, *stormEvery, deaths.Load(), atTick.Load())
	if made < *stormTicks || deaths.Load() < int64(*stormTicks) {
		t.Errorf("%d ticks and %d deaths are less than %d", made, deaths.Load(), *stormTicks)
	}
	if atTick.Load() == 0 {
		t.Error("nobody died at a tick")
	}
}

// runKeeper starts a process and kills it later. It reports whether the process had already killed
// itself.
func runKeeper(t *testing.T, o order, life time.Duration) (itself bool) {
	text, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKeeperProcess$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return false
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
		return true
	case <-time.After(life):
		_ = cmd.Process.Kill()
		<-ended
		return false
	}
}
