package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// harms are ways in which a handler loses its transaction while others can use the server.
var harms = map[string]struct {
	do       string        // by a trigger on the handler's table
	deferred bool          // at COMMIT
	work     time.Duration // how long the handler works afterwards
	why      string        // part of the dead letter's last error
}{
	"killed":              {do: "pg_terminate_backend(pg_backend_pid())", why: "P4032"},
	"killed at COMMIT":    {do: "pg_terminate_backend(pg_backend_pid())", deferred: true, why: "08007"},
	"read-only":           {do: "set_config('transaction_read_only', 'on', true)", why: "P4032"},
	"idle in transaction": {do: "set_config('idle_in_transaction_session_timeout', '20ms', true)", work: 200 * time.Millisecond, why: "answers others"},
	"transaction_timeout": {do: "set_config('transaction_timeout', '100ms', true)", work: 300 * time.Millisecond, why: "answers others"},
}

// harmful returns a schema in which an insert for a job of table culprit does harm.
func harmful(do string, deferred bool) string {
	trigger := "create trigger harm after insert on effect for each row"
	if deferred {
		trigger = "create constraint trigger harm after insert on effect deferrable initially deferred for each row"
	}
	return fmt.Sprintf(`create table culprit (job bigint);
create function harm() returns trigger language plpgsql as $$
begin
  if exists (select from culprit as c where c.job = new.job) then
    perform %s;
  end if;
  return null;
end $$;
%s execute function harm()`, do, trigger)
}

// If a handler loses its transaction alone each time, its attempts are charged and the job becomes
// a dead letter with the reason. The other jobs of its batches and of other lanes succeed.
func TestWorker_AHandlerThatIsLostAloneIsCharged(t *testing.T) {
	t.Parallel()
	for name, harm := range harms {
		for _, form := range []string{"transactional", "batch", "sql", "sql batch", "then", "sql then"} {
			t.Run(form+" "+name, func(t *testing.T) {
				t.Parallel()
				c := setupCrew(t, harmful(harm.do, harm.deferred))
				if name == "transaction_timeout" && c.serverVersion() < 170000 {
					return // the setting came with PostgreSQL 17
				}
				const good = 11
				c.enqueueMany(1, job.Request{MaxAttempts: 2, Lane: "culprit"})
				var culprit int64
				c.must(c.pool.QueryRow(t.Context(), "insert into culprit select id from pawl.job returning job").Scan(&culprit))
				for n := range good {
					c.enqueueMany(1, job.Request{MaxAttempts: 1, Lane: []string{"", fmt.Sprint(n)}[n%2]})
				}
				h := c.handlerOf(form, func(j job.Job) error {
					if j.ID == culprit {
						patience.Elapse(harm.work)
					}
					return nil
				})
				c.handlers, c.concurrency = []job.Handler{inBatches(4, h)}, 8
				c.hire()
				c.untilDone()
				if name == "read-only" && strings.HasSuffix(form, "batch") {
					c.wantEffects(good + 1) // the error ends with the savepoint
					return
				}
				c.wantEffects(good)
				c.wantDeadLetter(2, harm.why)
			})
		}
	}
}

func (c *crew) serverVersion() (version int) {
	c.Helper()
	c.must(c.pool.QueryRow(c.Context(), "select current_setting('server_version_num')::int").Scan(&version))
	return version
}
