package dashboard_test

import (
	"regexp"
	"slices"
	"testing"
)

var needed = regexp.MustCompile(`<li(?: class="(\w+)")?><a href="[^"]*"><strong>([^<]*)</strong>([^<]*)</a></li>`)

// The overview begins with the kinds that need a person. If there is none, one green line says so.
func TestOverview_BeginsWithWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	read := func() (all []string) {
		for _, m := range needed.FindAllStringSubmatch(b.get("").body, -1) {
			all = append(all, m[1]+" "+m[2]+" "+m[3])
		}
		return all
	}
	load := []string{" 0 jobs due", " – oldest due job", " 0 workers alive"}
	if got, want := read(), append([]string{"good 0 dead, unknown, blocked or silent"}, load...); !slices.Equal(got, want) {
		t.Errorf("of an empty database: %q, want %q", got, want)
	}
	b.exec(`insert into pawl.job (queue, kind, payload, status) select 'q', 'k', '', 'dead_letter' from generate_series(1, 1234)`)
	b.exec(`insert into pawl.worker (name, seen_at) values ('silent', clock_timestamp() - interval '1 hour')`)
	if got, want := read(), append([]string{"bad 1,234 dead letters", "odd 1 workers silent"}, load...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
