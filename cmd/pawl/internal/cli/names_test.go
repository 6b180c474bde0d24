package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// A consumer has the name orders and its queue inbox/orders, and so for sinks and the scopes of
// steps. Given the wrong one of the two names, each command that finds nothing names the other.
func TestNames_TheOtherNameIsOffered(t *testing.T) {
	t.Parallel()
	db := pawltest.URL(t, `
select pawl_v1.job_enqueue('inbox/orders', 'delivery', '') from generate_series(1, 5);
update pawl.job as j set status = 'dead_letter';
select pawl_v1.job_enqueue('inbox/orders', 'delivery', '', '{"lane": "a"}');
select pawl_v1.job_enqueue('mail', 'welcome', '');
select pawl_v1.outbox_append('billing', 'OrderPlaced', 'order', '17', '');
select pawl_v1.step_begin('job/pay', '1@1', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "k"}');
select pawl_v1.step_begin('inbox/orders', 'm1', 'charge', sha256('p'), '{"recovery": "keyed", "provider_key": "k"}');
select pawl_v1.sequence_gate_pass('orders', 'account 7', 1, '{"mode": "latest"}')`)
	const (
		noConsumer = "inbox/orders is the queue of consumer orders"
		noJobs     = "queue orders has no jobs; did you mean inbox/orders, which has 6?"
	)
	offered := map[string]string{
		"jobs list --queue orders":                                                 "did you mean --queue inbox/orders (6 found)?",
		"jobs list --queue orders --limit 2 --json":                                "did you mean --queue inbox/orders (2 or more found)?",
		"jobs list --queue outbox/mail":                                            "did you mean --queue mail (1 found)?",
		"dlq list --queue orders":                                                  "did you mean --queue inbox/orders (5 found)?",
		"dlq retry --queue orders --dry-run":                                       "did you mean --queue inbox/orders (5 found)?",
		"dlq retry --queue orders --json --reason r --yes":                         "did you mean --queue inbox/orders (5 found)?",
		"dlq discard --queue orders --reason r --yes":                              "did you mean --queue inbox/orders (5 found)?",
		"lanes list --queue orders":                                                "did you mean --queue inbox/orders (1 found)?",
		"lanes unblock orders a --reason r --yes":                                  noJobs,
		"lanes policy orders a park --reason r":                                    noJobs,
		"queues pause orders --reason r --dry-run":                                 noJobs,
		"queues drain orders --dry-run":                                            noJobs,
		"queues resume orders --reason r":                                          noJobs,
		"queues set orders --archive=true --reason r":                              noJobs,
		"outbox list --sink outbox/billing":                                        "did you mean --sink billing (1 found)?",
		"outbox lag --sink outbox/billing":                                         "did you mean --sink billing (1 found)?",
		"outbox heads --sink outbox/billing":                                       "did you mean --sink billing (1 found)?",
		"steps list --scope pay --status planned":                                  "did you mean --scope job/pay (1 found)?",
		"steps list --scope orders --status planned":                               "did you mean --scope inbox/orders (1 found)?",
		"explain m1 --scope job/inbox/orders":                                      "did you mean --scope inbox/orders",
		"sequence-gates list --consumer inbox/orders":                              "did you mean --consumer orders (1 found)?",
		"sequence-gates release inbox/orders g --dry-run":                          noConsumer,
		"sequence-gates reset inbox/orders g 1 --dry-run":                          noConsumer,
		"inbox show inbox/orders m1":                                               noConsumer,
		"inbox forget inbox/orders m1 --reason r --yes":                            noConsumer,
		"inbox replay inbox/orders m1 --reason r --yes":                            noConsumer,
		"inbox replay inbox/orders --since 1h --reason r --yes":                    noConsumer,
		"purge --table inbox --consumer inbox/orders --older-than 1000h --dry-run": noConsumer,
	}
	for line, want := range offered {
		if _, stderr := run(t, db, line); !strings.Contains(stderr, want) {
			t.Errorf("%s does not say %q: %q", line, want, stderr)
		}
	}
	for _, line := range []string{"jobs list --queue nothing", "jobs list --queue mail", "dlq list --queue mail", "dlq retry --queue inbox/orders --kind none --dry-run",
		"queues pause mail --reason r", "queues pause nothing --reason r", "lanes list --queue inbox/orders", "outbox list --sink billing", "jobs list --queue orders --after 1", "jobs list --kind none",
		"sequence-gates list --consumer orders"} {
		if _, stderr := run(t, db, line); strings.Contains(stderr, "did you mean") {
			t.Errorf("%s offers a name without cause: %q", line, stderr)
		}
	}

	// Each command that takes such a name is in the table above.
	takes := regexp.MustCompile(`\b(QUEUE|CONSUMER)\b`)
	// The names that these take are not those of rows.
	others := []string{"dev sqs", "dev sqs send", "size", "commands list", "adopt"}
	for _, c := range runnable(newRoot()) {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		flagged := slices.ContainsFunc([]string{"queue", "consumer", "sink", "scope"}, func(name string) bool { return c.Flags().Lookup(name) != nil })
		tried := slices.ContainsFunc(others, func(name string) bool { return name == path })
		for line := range offered {
			tried = tried || strings.HasPrefix(line, path+" ")
		}
		if (flagged || takes.MatchString(c.Use)) && !tried {
			t.Errorf("pawl %s takes a name, and no line of this test tries the other one", path)
		}
	}
}

// run runs a command line of words without spaces.
func run(t *testing.T, db, line string) (stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	Run(t.Context(), append(strings.Fields(line), "--database-url="+db), &out, &err)
	return out.String(), err.String()
}
