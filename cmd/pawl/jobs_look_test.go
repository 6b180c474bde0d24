package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if decoder.More() {
		t.Fatalf("more than one document: %s", text)
	}
	return value
}

func TestJobsList_Table(t *testing.T) {
	t.Parallel()
	db := withLetters(t)
	const golden = `ID  QUEUE   KIND    STATUS       ATTEMPTS  CRASHES  AGE  DUE    WORKER  LAST ERROR
1   orders  charge  dead_letter  3/3       0        3h   -      -       stock is away
2   orders  charge  unknown      3/3       0        3h   -      -       stock is away
3   orders  charge  pending      3/3       0        3h   in 9m  -       stock is away
4   orders  charge  processing   3/3       0        3h   -      w1      stock is away
5   orders  charge  cancelled    3/3       0        3h   -      -       stock is away
6   orders  charge  waiting      3/3       0        3h   -      -       stock is away
`
	const dead = `ID  QUEUE   KIND    STATUS       ATTEMPTS  CRASHES  AGE  KEY  LAST ERROR
1   orders  charge  dead_letter  3/3       0        3h   -    stock is away
2   orders  charge  unknown      3/3       0        3h   -    stock is away
`
	if r := mustPawl(t, db, "jobs", "list"); r.stdout != golden || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "dlq", "list"); r.stdout != dead {
		t.Errorf("dlq:\n%s", r.stdout)
	}
	r := mustPawl(t, db, "jobs", "list", "--queue", "orders", "--kind", "charge", "--status", "dead_letter,unknown", "--after", "1", "--limit", "1")
	if !strings.HasSuffix(r.stdout, "\n2   orders  charge  unknown  3/3       0        3h   -    -       stock is away\n") || r.stderr != "" {
		t.Errorf("filtered: %s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "jobs", "list", "--queue", "none"); r.stdout != "" || r.stderr != "no jobs\n" {
		t.Errorf("none: %+v", r)
	}
}

// Scripts read these documents: every field by its name, and arrays are never null.
func TestJobs_JSON(t *testing.T) {
	t.Parallel()
	db := withLetters(t)
	type row struct {
		ID                          int64
		Queue, Kind, Status         string
		Priority, Attempts, Crashes int
		MaxAttempts                 int `json:"max_attempts"`
		Fence                       int64
		AvailableAt                 string `json:"available_at"`
		CreatedAt                   string `json:"created_at"`
		Worker                      *string
		LastError                   *string `json:"last_error"`
		ArgsOctets                  int     `json:"payload_octets"`
		ReadAt                      string  `json:"read_at"`
		Lane                        *string
		LastCode                    *string `json:"last_code"`
		Key                         *string
	}
	type page struct {
		Jobs      []row
		NextAfter *string `json:"next_after"`
	}
	p := decode[page](t, mustPawl(t, db, "jobs", "list", "--json", "--limit", "4").stdout)
	if len(p.Jobs) != 4 || *p.NextAfter != "4" || *p.Jobs[3].Worker != "w1" || p.Jobs[0].Worker != nil ||
		p.Jobs[0].MaxAttempts != 3 || p.Jobs[0].ArgsOctets != 12 || !strings.HasSuffix(p.Jobs[0].CreatedAt, "Z") {
		t.Errorf("%+v", p)
	}
	if r := mustPawl(t, db, "jobs", "list", "--json", "--queue", "none"); r.stdout != `{"jobs":[]}`+"\n" || r.stderr != "" {
		t.Errorf("none: %+v", r)
	}

	const retried = `{"results":[{"outcome":"retried","job_id":1,"was":"dead_letter"}]}` + "\n"
	if r := mustPawl(t, db, "dlq", "retry", "1", "--reason", "r", "--actor", "ann", "--json"); r.stdout != retried || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	r := pawl(t, db, "jobs", "discard", "4", "9", "--reason", "r", "--yes", "--json")
	if r.code != 1 || !strings.HasPrefix(r.stdout, `{"results":[{"outcome":"refused","job_id":4,"was":"processing","hint":"an attempt is running`) ||
		!strings.Contains(r.stdout, `{"outcome":"absent","job_id":9,"hint":`) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}

	type detail struct {
		row
		Headers map[string]any
		Payload []byte
		Errors  []struct {
			At, Error string
			Attempt   int
			Code      *string
		}
		WorkerID       *int64  `json:"worker_id"`
		WorkerSeenAt   *string `json:"worker_seen_at"`
		WorkerPresence bool    `json:"worker_presence"`
		LeaseExpiresAt *string `json:"lease_expires_at"`
		Steps          []any
		Changes        []struct {
			ID                      int64
			At, Actor, Verb, Reason string
			Before, After           map[string]any
		}
	}
	r = pawl(t, db, "jobs", "show", "1", "4", "9", "--json")
	s := decode[struct {
		Jobs     []detail
		Archived []any
		Absent   []struct {
			ID      int64
			Changes []any
		}
	}](t, r.stdout)
	if r.code != 1 || len(s.Jobs) != 2 || s.Archived == nil || len(s.Absent) != 1 || s.Absent[0].ID != 9 || s.Absent[0].Changes == nil {
		t.Fatalf("%d: %+v", r.code, s)
	}
	first, held := s.Jobs[0], s.Jobs[1]
	if string(first.Payload) != `{"cents": 1}` || first.Headers == nil || first.LeaseExpiresAt != nil ||
		len(first.Changes) != 1 || first.Changes[0].Actor != "ann" || first.Changes[0].Before["status"] != "dead_letter" || first.Changes[0].After["status"] != "pending" {
		t.Errorf("%+v", first)
	}
	if held.LeaseExpiresAt == nil || *held.Worker != "w1" || *held.WorkerID != 1 || held.Changes == nil || *held.Errors[0].Code != "P0001" {
		t.Errorf("%+v", held)
	}
}

func TestJobsShow_Text(t *testing.T) {
	t.Parallel()
	db := withLetters(t, "update pawl.job set headers = '{\"pawl-key\": \"order-4\"}' where id = 4")
	mustPawl(t, db, "jobs", "cancel", "3", "--reason", "called off", "--actor", "ann", "--yes")
	moment := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	show := func(id string) string {
		return moment.ReplaceAllString(mustPawl(t, db, "jobs", "show", id).stdout, "TIME")
	}
	golden := `job 4
  queue      orders
  kind       charge
  status     processing
  attempts   3 of 3, 0 crashes
  priority   2
  fence      3
  created    TIME (3h ago)
  available  TIME (in 9m)
  held by    worker 1, w1, seen SOON ago, no presence lock; its lease ends TIME (in SOON)
  headers    {"pawl-key":"order-4"}
  errors     1 kept
    TIME attempt 3: P0001: stock is away
  payload    12 octets, SHA-256 ` + fmt.Sprintf("%x", sha256.Sum256([]byte(`{"cents": 4}`))) + `
    {"cents": 4}
  audit      changes by hand: 0
`
	if got := regexp.MustCompile(`\b\d+s\b`).ReplaceAllString(show("4"), "SOON"); got != golden {
		t.Error(got)
	}
	if got := show("6"); !strings.Contains(got, "\n  lane       account-17\n  status     waiting\n") {
		t.Error(got)
	}
	if got := show("3"); !strings.HasSuffix(got, "  audit      changes by hand: 1\n    TIME job_cancel by ann, pending → cancelled: called off\n") {
		t.Error(got)
	}
	exec1(t, db, "update pawl.worker set seen_at = seen_at - interval '5 minutes'")
	if got := show("4"); !strings.Contains(got, "ago), the next sweep takes the job back") {
		t.Error(got)
	}
}
