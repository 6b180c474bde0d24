package main

import (
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// traces counts the rows and schemas that a demo may leave in a database.
const traces = `
select (select count(*) from pawl.inbox) + (select count(*) from pawl.job) + (select count(*) from pawl.worker)
     + (select count(*) from pawl.step) + (select count(*) from pawl.step_call) + (select count(*) from pawl.audit)
     + (select count(*) from pg_namespace as n where n.nspname like 'pawl\_demo%')`

// An unsuitable database is refused in one line with the next step, and is not changed.
func TestDemo_DatabaseURL_Unsuitable(t *testing.T) {
	t.Parallel()
	demo := func(url string) result { return newDemo(t, "--database-url", url, "--messages", "5").run() }
	wantFailure(t, demo(empty(t)), 1, "schema is not installed", "pawl migrate up")
	newer := pawltest.URL(t, "insert into pawl.migration values (999, 'later', 998, 'x')")
	wantFailure(t, demo(newer), 1, "needs clients of version 998", "deploy a newer build")
	address := closedPort(t)
	wantFailure(t, demo("postgres://u:"+secret+"@"+address+"/d"), 1, "cannot reach "+address, "correct the database URL")
	wantFailure(t, demo("postgres://u:"+secret+"@"+silent(t)+"/d?connect_timeout=1"), 1, "no answer in time")
	if n := one[int](t, newer, traces); n != 0 {
		t.Errorf("%d rows and schemas left", n)
	}
}
