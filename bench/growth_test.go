package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
)

var growthTiny = growthSizes{keys: []int{0, 1000}, jobs: []int{1000}, processes: []int{1, 2}, octets: []int{100, 100_000}}

// Each row of growth runs at sizes that take no time. The measures compare what they did with the database, and fail otherwise.
func TestRun_EveryRowOfGrowth(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	plans := growthTiny.plans()
	r, err := run(ctx, plans, scales["tiny"], []string{""}, "", func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(plans) {
		t.Errorf("%d rows of %d", len(r.Rows), len(plans))
	}
	for _, row := range r.Rows {
		for i, l := range row.Lines {
			if len(l.Rounds) != 1 {
				t.Errorf("%s, %s: %d rounds", row.ID, l.Who, len(l.Rounds))
			}
			for _, round := range l.Rounds {
				timed := !row.isRate()
				if round.Failed != "" || !(round.Value > 0) || round.Count == 0 || timed && round.P99 < round.Value || !timed && round.ClientCPU+round.ServerCPU <= 0 {
					t.Errorf("%s, %s: %+v", row.ID, l.Who, round)
				}
			}
			if row.XLabel != "" && i > 0 && l.X <= row.Lines[i-1].X {
				t.Errorf("%s, %s: stands at %v, the line before at %v", row.ID, l.Who, l.X, row.Lines[i-1].X)
			}
		}
	}
}

// A measure that finds another number of rows than it should has no figure.
func TestGrowth_WrongCountsFail(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	one := consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(applyOne)}
	idle := func(context.Context, *bed) (string, error) { return "", errors.New("nothing was purged") }
	for name, c := range map[string]struct {
		on  system
		m   measure
		why string
	}{
		"keys":     {fillInbox.of(10), inboxBeside(one, randomKey, 11), "seen beside"},
		"wait":     {fillInbox.of(10), inboxWait(one, &halfLoad{}, 9), "seen beside"},
		"repeated": {fillInbox.of(10), inboxBeside(one, func() string { return "the same" }, 10), "acknowledged"},
		"commands": {fillCommand.of(10), commandsBeside(11), "remembered beside"},
		"jobs":     {jobsWaiting(1000), enqueueBeside(999), "jobs wait"},
		"drain": {pawlSystem, func(ctx context.Context, b *bed, s scale) (Round, error) {
			s.drain = 0
			return b.drainWaiting(ctx, noop, 10, s)
		}, "had ended"},
		"purge":  {fillInbox.of(0), claimsBeside(&halfLoad{}, purging), "deleted nothing"},
		"vacuum": {fillInbox.of(0), claimsBeside(&halfLoad{}, vacuuming), "dead keys"},
		"idle":   {fillInbox.of(0), claimsBeside(&halfLoad{}, idle), "nothing was purged"},
	} {
		b, err := h.bed(t.Context(), c.on)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.m(t.Context(), b, scales["tiny"]); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, %+v; want an error with %q", name, err, r, c.why)
		}
		b.close(t.Context())
	}
}

// Rows that were filled in have the columns that Pawl sets, the size of its rows, and the indexes of the schema.
func TestFilling_LooksLikeWhatPawlStores(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	s := scales["tiny"]
	s.enqueue = 50 * time.Millisecond
	one := consumer.Config{Concurrency: inFlight, Handler: consumer.HandleTx(applyOne)}
	for _, c := range []struct {
		f     filling
		store measure
		where string // the rows that Pawl stored
	}{
		{fillInbox, inboxBeside(one, randomKey, 0), "true"},
		{fillCommand, commandsBeside(0), "length(r.key) = 36"},
	} {
		looks := func(b *bed, where string) (columns []string, octets float64, indexes []string) {
			err := b.pool.QueryRow(t.Context(), `
				select (select array_agg(distinct c.k order by c.k) from pawl.`+c.f.table+` as r, jsonb_object_keys(jsonb_strip_nulls(to_jsonb(r))) as c (k) where `+where+`),
				       (select avg(pg_column_size(r.*)) from pawl.`+c.f.table+` as r where `+where+`),
				       (select array_agg(i.indexdef order by i.indexname) from pg_indexes as i where i.schemaname = 'pawl' and i.tablename = $1)`, c.f.table).
				Scan(&columns, &octets, &indexes)
			if err != nil {
				t.Fatal(err)
			}
			return columns, octets, indexes
		}
		bed := func(n int) *bed {
			b, err := h.bed(t.Context(), c.f.of(n))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.pool.Close() })
			return b
		}
		filled, stored := bed(1000), bed(0)
		if _, err := c.store(t.Context(), stored, s); err != nil {
			t.Fatal(err)
		}
		columns, octets, indexes := looks(filled, "true")
		wantColumns, wantOctets, wantIndexes := looks(stored, c.where)
		if !slices.Equal(columns, wantColumns) || octets < wantOctets-4 || octets > wantOctets+4 || !slices.Equal(indexes, wantIndexes) {
			t.Errorf("pawl.%s:\nfilled %v, %v octets, %v\nstored %v, %v octets, %v", c.f.table, columns, octets, indexes, wantColumns, wantOctets, wantIndexes)
		}
	}
}

// A disk that is too small is found out before anything is written.
func TestFilling_RefusesADiskThatIsTooSmall(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	for range 2 { // each round tries again, and says the same
		_, err = h.bed(t.Context(), fillInbox.of(1_000_000_000_000))
		if err == nil || !strings.Contains(err.Error(), "GiB of disk") || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("got %v", err)
		}
	}
}

func TestGrowthFlags(t *testing.T) {
	kept := growthAsked
	t.Cleanup(func() { growthAsked = kept })
	parse := func(args ...string) error {
		growthAsked = kept
		fs := flag.NewFlagSet("bench", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		fs.Bool("quick", false, "")
		growthFlags(fs)
		return fs.Parse(args)
	}
	for _, bad := range []string{"-keys=banana", "-keys=-1", "-keys=", "-keys=1,,2", "-keys=5,5", "-keys=1e6", "-jobs=0", "-processes=0", "-processes=9", "-octets=0", "-octets=5000000"} {
		if err := parse(bad); err == nil || !strings.Contains(err.Error(), "pass ") {
			t.Errorf("%s: %v, want an error that says what to pass", bad, err)
		}
	}
	lines := func(args ...string) (who []string) {
		if err := parse(args...); err != nil {
			t.Fatal(err)
		}
		for _, p := range growthPlans() {
			for _, e := range p.entries {
				who = append(who, p.ID+": "+e.Who)
			}
		}
		return who
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "growth-keys: Pawl, 10,000,000 keys"},
		{[]string{"-quick"}, "growth-keys: Pawl, 100,000 keys"},
		{[]string{"-quick", "-keys", "0, 50000000"}, "growth-keys: Pawl, 50,000,000 keys"},
		{[]string{"-jobs", "5000000"}, "growth-jobs: Pawl, 5,000,000 jobs"},
		{[]string{"-processes", "3"}, "growth-processes: Pawl, 3 processes"},
		{[]string{"-octets", "2048"}, "growth-octets: Pawl, 2,048 octets"},
	} {
		if got := lines(c.args...); !slices.Contains(got, c.want) {
			t.Errorf("%v: %v, want %q among them", c.args, got, c.want)
		}
	}
}

// Only answers that hold a job count, and only while somebody records.
func TestClaimTimer(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	b, err := h.bed(t.Context(), jobsWaiting(3))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close(t.Context())
	timer, done, err := b.timed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	conn := b.contender.(*pawlQueue).pool
	query := func(sql string) {
		t.Helper()
		rows, err := conn.Query(t.Context(), sql)
		if err == nil {
			_, err = pgx.CollectRows(rows, pgx.RowToMap)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var worker int64
	if err := conn.QueryRow(t.Context(), "insert into pawl.worker (name) values ('w') returning id").Scan(&worker); err != nil {
		t.Fatal(err)
	}
	claim := "select * from pawl_v1.job_claim('bench', (select max(id) from pawl.worker), 1)"
	turn := "select * from pawl_v1.job_turn('{}', '{}', 'bench', (select max(id) from pawl.worker), 1)"
	query(claim)
	timer.record(true)
	query("select 1")
	query(claim)
	query(turn)
	query(claim) // nothing is left
	query(turn)
	var r Round
	if err := timer.into(&r); err != nil || r.Count != 2 {
		t.Errorf("%d calls counted, want 2; %v", r.Count, err)
	}
}
