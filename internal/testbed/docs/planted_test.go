package docs_test

import "testing"

// A wrong name of each kind is found, on a page and in a comment. The correct name beside it is not
// reported.
func TestNames_PlantedFalsehoodsAreFound(t *testing.T) {
	t.Parallel()
	w := existing(t)
	for truth, falsehood := range map[string]string{
		"see `internal/txn/replicated.go`":                      "see `internal/txn/replication.go`",
		"it is in internal/txn/replicated.go.":                  "it is in internal/txn/gone.go.",
		"see path_test.go":                                      "see paths_test.go",
		"schema/tables/NNNN_name.up.sql":                        "schema/table/NNNN_name.up.sql",
		"the folder `internal/txn/`":                            "the folder `internal/txns/`",
		"docs/guides/steps.md has it":                           "docs/guides/effects.md has it",
		"docs/operating/production.md#poolers":                  "docs/operating/production.md#poolers-and-more",
		"https://github.com/pawl-go/pawl/blob/main/docs/faq.md": "https://github.com/pawl-go/pawl/blob/main/docs/questions.md",
		"a source of package pawlsqs":                           "a source of package sqspawl",
		"in steps of package [`step`](steps.md)":                "in steps of package [`steppe`](steps.md)",
		"a call of `step.Providers()`":                          "a call of `step.Vendors()`",
		"a `job.HandleTx` and job.Config.Lease":                 "a `job.HandleTx` and job.Config.LeaseTime",
		"internal/txn.Begin":                                    "internal/txn.Commence",
		"`make proof` runs":                                     "`make proofs` runs",
		"`pawl_v1.job_enqueue` and pawl_v1.dead_letters":        "`pawl_v1.job_enqueue` and pawl_v1.letters",
		"a row of pawl.sequence_gate":                           "a row of pawl.gate",
		"watch pawl_oldest_due_age_seconds":                     "watch pawl_oldest_age_seconds",
		"the alert `PawlQueueBehind`":                           "the alert `PawlQueueLate`",
		"set PAWL_DATABASE_URL":                                 "set PAWL_DB_URL",
		"tested by `TestConsumer_KilledAtEveryPoint`":           "tested by `TestConsumer_KilledSomewhere`",
		"go test ./job -run Crash_ToRerun":                      "go test ./job -run Crash_ToRun",
		"go test ./schedule -args -storm.ticks=9":               "go test ./schedule -args -storm.tocks=9",
		"the code P4020":                                        "the code P4021",
	} {
		planted(t, w, place{name: "docs/guides/jobs.md", page: true}, truth, falsehood)
		planted(t, w, place{name: "job/job.go"}, truth, falsehood)
	}
	for truth, falsehood := range map[string]string{
		"the default of `Presence.URL`": "the default of `Presence.Address`",
		"the field `MaxAttempts`":       "the field `MostAttempts`",
		"the option `max_attempts`":     "the option `most_attempts`",
	} {
		planted(t, w, place{name: "docs/guides/jobs.md", page: true}, truth, falsehood)
	}
	for truth, falsehood := range map[string]string{
		"see [Config.Lease]":                  "see [Config.LeaseTime]",
		"see [pawl.Error]":                    "see [pawl.Mistake]",
		"see [github.com/pawl-go/pawl/inbox]": "see [github.com/pawl-go/pawl/outbound]",
	} {
		planted(t, w, place{name: "job/job.go"}, truth, falsehood)
	}
}

func planted(t *testing.T, w *world, p place, truth, falsehood string) {
	t.Helper()
	if p.text = truth; len(w.missing(p)) > 0 {
		t.Errorf("%q: %v", truth, w.missing(p))
	}
	if p.text = falsehood; len(w.missing(p)) == 0 {
		t.Errorf("%s: %q passes", p.name, falsehood)
	}
}
