package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/schedule/cron"
)

// ticks returns the ticks of an expression in a period, as its zone's clocks show them.
func ticks(t *testing.T, expression, zone, from, to string) (shown []string) {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := cron.Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	end := at(t, to)
	for next := plan.Next(at(t, from)); next.Before(end); next = plan.Next(next) {
		shown = append(shown, next.In(location).Format("02T15:04-07"))
	}
	return shown
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse("2006-01-02T15:04Z07", text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// The package's table of changes of clocks holds in zones with different rules.
func TestPlan_ChangesOfClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, expression, zone, from, to, want string }{
		// Berlin: 2026-03-29 02:00+01 becomes 03:00+02, 2026-10-25 03:00+02 becomes 02:00+01.
		{"02:30 does not exist: once, at the change", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01", "2026-03-30T12:00+02", "29T03:00+02 30T02:30+02"},
		{"02:30 comes twice: once, the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02", "2026-10-26T12:00+01", "25T02:30+02 26T02:30+01"},
		{"several skipped times: one tick", "*/15 2 * * *", "Europe/Berlin", "2026-03-29T00:00+01", "2026-03-30T00:00+02", "29T03:00+02"},
		{"a skipped time and the hour behind it: one tick", "0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00+01", "2026-03-30T00:00+02", "29T03:00+02"},
		{"several repeated times: each once", "*/30 1-3 * * *", "Europe/Berlin", "2026-10-25T00:00+02", "2026-10-25T12:00+01", "25T01:00+02 25T01:30+02 25T02:00+02 25T02:30+02 25T03:00+01 25T03:30+01"},
		{"every hour, forward: no hour is missing", "*/30 * * * *", "Europe/Berlin", "2026-03-29T01:10+01", "2026-03-29T04:00+02", "29T01:30+01 29T03:00+02 29T03:30+02"},
		{"every hour, back: an hour is an hour", "*/30 * * * *", "Europe/Berlin", "2026-10-25T01:50+02", "2026-10-25T03:10+01", "25T02:00+02 25T02:30+02 25T02:00+01 25T02:30+01 25T03:00+01"},
		{"every hour, written out", "30 0-23 * * *", "Europe/Berlin", "2026-10-25T01:50+02", "2026-10-25T04:00+01", "25T02:30+02 25T02:30+01 25T03:30+01"},
		{"@hourly", "@hourly", "Europe/Berlin", "2026-03-29T00:30+01", "2026-03-29T04:30+02", "29T01:00+01 29T03:00+02 29T04:00+02"},
		{"every second hour is certain hours", "0 */2 * * *", "Europe/Berlin", "2026-10-25T00:30+02", "2026-10-25T05:00+01", "25T02:00+02 25T04:00+01"},

		// New York: 2026-03-08 02:00-05 becomes 03:00-04, 2026-11-01 02:00-04 becomes 01:00-05. The
		// parser alone says 03:30, and 01:30 twice.
		{"New York, forward", "30 2 * * *", "America/New_York", "2026-03-07T12:00-05", "2026-03-09T12:00-04", "08T03:00-04 09T02:30-04"},
		{"New York, back", "30 1 * * *", "America/New_York", "2026-10-31T12:00-04", "2026-11-02T12:00-05", "01T01:30-04 02T01:30-05"},

		// Lord Howe: half an hour. 2026-04-05 02:00+11 becomes 01:30+10:30; 2026-10-04 02:00+10:30
		// becomes 02:30+11.
		{"half an hour forward, certain hour", "10 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "2026-10-04T00:00Z", "04T02:30+11"},
		{"half an hour forward, behind the gap", "40 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "2026-10-04T00:00Z", "04T02:40+11"},
		{"half an hour back, certain hour", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", "2026-04-05T00:00Z", "05T01:45+11"},
		{"half an hour back, every hour", "45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00Z", "2026-04-04T16:30Z", "05T01:45+11 05T01:45+10 05T02:45+10"},

		// Cairo has no midnight on 2026-04-24, and Apia no 30 December 2011.
		{"no midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", "2026-04-25T12:00Z", "24T01:00+03 25T00:00+03"},
		{"no such day", "0 12 30 12 *", "Pacific/Apia", "2011-12-28T00:00Z", "2012-01-02T00:00Z", "31T00:00+14"},
		{"UTC changes nothing", "30 2 * * *", "UTC", "2026-03-28T12:00Z", "2026-03-30T12:00Z", "29T02:30+00 30T02:30+00"},
	} {
		if got := strings.Join(ticks(t, c.expression, c.zone, c.from, c.to), " "); got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.expression, got, c.want)
		}
	}
}

// An oracle goes through 2026 minute by minute, reads the clocks and applies the documented rule.
// It finds the same ticks as the plan.
func TestPlan_AYearMinuteByMinute(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			location, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			all := []*oracle{
				{text: "30 2 * * *", hour: is(2), minute: is(30)},
				{text: "*/20 1-3 * * *", hour: func(h int) bool { return 1 <= h && h <= 3 }, minute: func(m int) bool { return m%20 == 0 }},
				{text: "0 */6 * * *", hour: func(h int) bool { return h%6 == 0 }, minute: is(0)},
				{text: "*/7 * * * *", minute: func(m int) bool { return m%7 == 0 }},
				{text: "15 * * * *", minute: is(15)},
			}
			for _, o := range all {
				o.plan = cron.MustParse(o.text, zone)
				o.next = o.plan.Next(time.Date(2025, 12, 31, 23, 59, 0, 0, time.UTC))
			}
			highest := time.Time{} // the latest time that the clocks have shown yet
			for now := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC); now.Year() < 2027; now = now.Add(time.Minute) {
				_, offset := now.In(location).Zone()
				shown := now.Add(time.Duration(offset) * time.Second) // in UTC, the same fields
				for _, o := range all {
					o.look(t, now, shown, highest)
				}
				if shown.After(highest) {
					highest = shown
				}
			}
			for _, o := range all {
				if o.found < 300 {
					t.Errorf("%s: only %d ticks", o.text, o.found)
				}
			}
		})
	}
}

// An oracle decides by the clocks whether a minute is due.
type oracle struct {
	text         string
	hour, minute func(int) bool // no hour: every hour
	plan         schedule.Plan
	next         time.Time
	found        int
}

func (o *oracle) look(t *testing.T, now, shown, highest time.Time) {
	due := o.minute(shown.Minute())
	if o.hour != nil {
		due = due && o.hour(shown.Hour()) && shown.After(highest) // else they have shown it before
		for skipped := highest.Add(time.Minute); !highest.IsZero() && skipped.Before(shown); skipped = skipped.Add(time.Minute) {
			due = due || o.hour(skipped.Hour()) && o.minute(skipped.Minute())
		}
	}
	if now.Year() < 2026 {
		return
	}
	if due != now.Equal(o.next) {
		t.Fatalf("%s: at %v the clocks show %v: due is %v, and the next tick %v", o.text, now, shown, due, o.next)
	}
	if due {
		o.found++
		o.next = o.plan.Next(now)
	}
}

func is(want int) func(int) bool { return func(n int) bool { return n == want } }

// The next tick does not depend on where the search began.
func TestPlan_NextFromAnywhere(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{"30 2 * * *", "*/20 1-3 * * *", "*/30 * * * *", "15 * * * *"} {
		for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe"} {
			plan := cron.MustParse(expression, zone)
			for _, change := range []string{"2026-03-29T01:00Z", "2026-10-25T01:00Z", "2026-04-04T15:00Z", "2026-10-03T15:30Z"} {
				from := at(t, change).Add(-4 * time.Hour)
				next := plan.Next(from)
				for now := from; now.Before(from.Add(8 * time.Hour)); now = now.Add(61 * time.Second) {
					if !now.Before(next) {
						next = plan.Next(next)
					}
					if got := plan.Next(now); !got.Equal(next) {
						t.Fatalf("%s in %s: the next after %v is %v, want %v", expression, zone, now, got, next)
					}
				}
			}
		}
	}
}

// The forms of crontab(5), and those that the page adds.
func TestParse_Forms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, from, to, want string }{
		// If both day fields are given, one that matches is enough.
		{"0 0 1 * 1", "2026-11-01T12:00Z", "2026-12-02T00:00Z", "02 09 16 23 30 01"},
		{"0 0 * * THU", "2026-11-01T12:00Z", "2026-11-15T00:00Z", "05 12"},
		{"0 0 * * 7", "2026-11-01T12:00Z", "2026-11-16T00:00Z", "08 15"},
		{"0 0 * * sun-mon", "2026-11-01T12:00Z", "2026-11-10T00:00Z", "02 08 09"},
		{"0 0 L * *", "2026-01-15T00:00Z", "2026-04-01T00:00Z", "31 28 31"},
		{"0 0 lw * *", "2026-01-15T00:00Z", "2026-04-01T00:00Z", "30 27 31"},
		{"0 0 15W * *", "2026-02-01T00:00Z", "2026-04-01T00:00Z", "16 16"},
		{"0 0 * * FRI#3", "2026-11-01T00:00Z", "2027-01-01T00:00Z", "20 18"},
		{"0 0 29 2 *", "2026-11-01T00:00Z", "2032-12-01T00:00Z", "29 29"},
		{"@monthly", "2026-11-15T00:00Z", "2027-01-15T00:00Z", "01 01"},
		{" 0   0 1 jan,JUL  * ", "2026-11-15T00:00Z", "2027-07-15T00:00Z", "01 01"},
	} {
		var days []string
		for _, tick := range ticks(t, c.expression, "", c.from, c.to) {
			days = append(days, tick[:2])
		}
		if got := strings.Join(days, " "); got != c.want {
			t.Errorf("%q: days %s, want %s", c.expression, got, c.want)
		}
	}
	leap := cron.MustParse("0 0 29 2 *", "UTC")
	if next := leap.Next(at(t, "2096-03-01T00:00Z")); next.Year() != 2104 {
		t.Errorf("after 2096 the next leap day is in %d", next.Year()) // 2100 has none
	}
	if s := cron.MustParse("0 0 * * *", "").String(); s != "0 0 * * * UTC" {
		t.Error(s)
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"", "UTC"}, {"* * * *", "UTC"}, {"* * * * * *", "UTC"}, {"60 * * * *", "UTC"}, {"* 24 * * *", "UTC"}, {"*/0 * * * *", "UTC"},
		{"0 0 30 2 *", "UTC"}, {"0 0 * * mox", "UTC"}, {"@reboot", "UTC"}, {"@every 1m", "UTC"}, {"H * * * *", "UTC"},
		{"TZ=UTC 0 0 * * *", "UTC"}, {"CRON_TZ=UTC 0 0 * * *", "UTC"}, {"0 0 * * *", "Europe/Atlantis"}, {"0 0 * * *", "Local"},
		{"0 0 * * *", "../../etc/passwd"}, {strings.Repeat("0,", 2000) + "0 0 * * *", "UTC"}, {"0 0 * * *\x00", "UTC"},
	} {
		if p, err := cron.Parse(c[0], c[1]); !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%.40q in %q: %v, %v", c[0], c[1], p, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustParse did not panic")
		}
	}()
	cron.MustParse("never", "UTC")
}

// A keeper neither hangs nor panics on arbitrary text in the table, and ticks only go forward.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "30 2 * * *", "0 0 l-2 * fri#l", "@weekly", "59 23 31 12 7", "0 */5 1-7 * mon"} {
		f.Add(seed, "Europe/Berlin", int64(1774746000))
	}
	f.Fuzz(func(t *testing.T, expression, zone string, seconds int64) {
		plan, err := cron.Parse(expression, zone)
		if err != nil {
			return
		}
		now := time.Unix(seconds%(1<<33), 0)
		for range 5 {
			next := plan.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) {
				t.Fatalf("%q in %q: after %v comes %v", expression, zone, now, next)
			}
			now = next
		}
	})
}
