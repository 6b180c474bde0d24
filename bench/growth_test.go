package main

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/consumer"
)

// Filled rows have the columns that Pawl sets, the size of Pawl's rows, and the schema's indexes.
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
		where string // condition for the rows that Pawl stored
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

// A disk that is too small is reported before anything is written.
func TestFilling_RefusesADiskThatIsTooSmall(t *testing.T) {
	h, err := startHost(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.stop()
	for range 2 { // each round tries again and fails with the same error
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
