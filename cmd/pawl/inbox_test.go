package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

// withInbox has delivery "done", which took effect and whose payload was kept, and delivery "dead",
// which is dead letter 1.
func withInbox(t *testing.T) string {
	t.Helper()
	db := pawltest.URL(t)
	exec1(t, db, `
select pawl_v1.inbox_claim('orders', 'done', sha256('{"n": 1}'), '{"result_ref": "order 17"}'), pawl_v1.delivery_keep('orders', 'done', '{"n": 1}');
do $$
begin
  perform pawl_v1.inbox_claim('orders', 'dead', sha256(''));
  perform pawl_v1.inbox_store('orders', 'dead', 'inbox/orders', 'delivery', '', '{"dead": true}');
end $$;
update pawl.inbox set received_at = clock_timestamp() - interval '3 hours'`)
	return db
}

// A delivery that took effect is shown, forgotten and replayed, in text.
func TestInbox_Text(t *testing.T) {
	t.Parallel()
	db := withInbox(t)
	golden := regexp.MustCompile(`^delivery done of consumer orders
  received   \S+Z \(3h ago\)
  processed  \S+Z \(\d+[sm] ago\)
  result     order 17
  payload    8 octets in pawl.delivery, fingerprint [0-9a-f]{64}
  audit      changes by hand: 0
$`)
	if r := mustPawl(t, db, "inbox", "show", "orders", "done"); !golden.MatchString(r.stdout) || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	if r := mustPawl(t, db, "inbox", "show", "orders", "dead"); !strings.Contains(r.stdout, "processed  not yet\n  job        1, dead_letter\n  payload    not kept,") {
		t.Errorf("%s", r.stdout)
	}
	wantFailure(t, pawl(t, db, "inbox", "forget", "orders", "dead", "--reason", "r", "--yes"), 1, "job 1 owns the delivery and is dead_letter", "discard")
	if r := mustPawl(t, db, "inbox", "forget", "orders", "done", "--reason", "reversed by hand", "--actor", "ann", "--yes"); r.stdout != "delivery done of consumer orders forgotten\n" {
		t.Errorf("%+v", r)
	}
	wantFailure(t, pawl(t, db, "inbox", "forget", "orders", "done", "--reason", "r", "--yes"), 1, "consumer orders remembers no delivery done")
	wantFailure(t, pawl(t, db, "inbox", "show", "orders", "done"), 1, "consumer orders remembers no delivery done", "ann forgot it at", "reversed by hand")
	wantFailure(t, pawl(t, db, "inbox", "show", "orders", "never"), 1, "remembers no delivery never", "it was never received")
	exec1(t, db, "select pawl_v1.inbox_claim('orders', 'done', sha256('another'))")
	if r := mustPawl(t, db, "inbox", "show", "orders", "done"); !strings.Contains(r.stdout, "changes by hand: 1\n") || !strings.Contains(r.stdout, "inbox_forget by ann: reversed by hand") {
		t.Errorf("%s", r.stdout)
	}
	exec1(t, db, "select pawl_v1.job_discard(1, 'ann', 'r')")
	if r := mustPawl(t, db, "inbox", "show", "orders", "dead"); !strings.Contains(r.stdout, "job        1, gone\n") {
		t.Errorf("%s", r.stdout)
	}
}

// Scripts read these documents.
func TestInbox_JSON(t *testing.T) {
	t.Parallel()
	db := withInbox(t)
	type seen struct {
		Remembered  bool
		Consumer    string
		Key         string
		Fingerprint *string
		ReceivedAt  *string `json:"received_at"`
		ProcessedAt *string `json:"processed_at"`
		JobID       *int64  `json:"job_id"`
		JobStatus   *string `json:"job_status"`
		ResultRef   *string `json:"result_ref"`
		Kept        bool
		KeptOctets  *int   `json:"kept_octets"`
		ReadAt      string `json:"read_at"`
		Changes     []struct{ Verb string }
	}
	s := decode[seen](t, mustPawl(t, db, "inbox", "show", "orders", "done", "--json").stdout)
	if !s.Remembered || s.Key != "done" || !s.Kept || len(*s.Fingerprint) != 64 || !strings.HasSuffix(*s.ProcessedAt, "Z") || s.JobID != nil || *s.ResultRef != "order 17" || *s.KeptOctets != 8 {
		t.Errorf("%+v", s)
	}
	s = decode[seen](t, mustPawl(t, db, "inbox", "show", "orders", "dead", "--json").stdout)
	if !s.Remembered || s.ProcessedAt != nil || *s.JobID != 1 || *s.JobStatus != "dead_letter" || s.KeptOctets != nil || s.Changes == nil {
		t.Errorf("%+v", s)
	}
	r := pawl(t, db, "inbox", "show", "orders", "never", "--json")
	if s = decode[seen](t, r.stdout); r.code != 1 || s.Remembered || s.Fingerprint != nil || s.ProcessedAt != nil {
		t.Errorf("%+v", r)
	}
	r = pawl(t, db, "inbox", "forget", "orders", "dead", "--json", "--reason", "r", "--yes")
	if r.code != 1 || !strings.HasPrefix(r.stdout, `{"outcome":"refused","job_id":1,"was":"dead_letter","hint":"`) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "inbox", "forget", "orders", "done", "--json", "--reason", "r", "--yes"); r.stdout != `{"outcome":"forgotten"}`+"\n" {
		t.Errorf("%+v", r)
	}
}

// Deliveries are replayed by id and by interval, first as a dry run. Deliveries that took effect
// are left alone.
func TestInbox_Replay(t *testing.T) {
	t.Parallel()
	db := withInbox(t)
	exec1(t, db, `
do $$
begin
  perform pawl_v1.inbox_claim('orders', 'gone', sha256('g'));
  perform pawl_v1.inbox_store('orders', 'gone', 'inbox/orders', 'delivery', 'g', '{"dead": true}');
  perform pawl_v1.delivery_keep('orders', 'gone', 'g', jsonb_build_object('hash', encode(sha256('g'), 'hex'), 'stored_as', '{"queue": "inbox/orders", "kind": "delivery"}'::jsonb));
  perform pawl_v1.job_discard(2, 'ann', 'r');
end $$`)
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "dead", "--reason", "r"), 2, "this would replay 1 delivery of consumer orders", "--yes")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "--reason", "r", "--yes"), 2, "either IDs or --since")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "dead", "--since", "1h", "--reason", "r", "--yes"), 2, "either IDs or --since")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "--since", "soon", "--reason", "r", "--yes"), 2, "neither a time nor a duration")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "--since", "1h", "--until", "2h", "--reason", "r", "--yes"), 2, "the interval is empty")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "dead", "--yes"), 2, "the reason is missing")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "done", "--reason", "r", "--yes"), 1, "delivery done is refused processed", "it has taken effect")
	wantFailure(t, pawl(t, db, "inbox", "replay", "orders", "never", "--reason", "r", "--yes"), 1, "remembers no delivery never, and none was kept")

	if r := mustPawl(t, db, "inbox", "replay", "orders", "--since", "1h", "--reason", "r", "--dry-run"); r.stdout != "dry run, nothing changed: delivery gone will run again (a new job)\n2 deliveries looked at, 1 took effect before\n" {
		t.Errorf("%+v", r)
	}
	type result struct {
		Key     string
		Outcome string
		JobID   *int64 `json:"job_id"`
		Was     *string
		Hint    *string
	}
	all := decode[struct{ Results []result }](t, mustPawl(t, db, "inbox", "replay", "orders", "--since", "1h", "--reason", "r", "--yes", "--json").stdout).Results
	if len(all) != 2 || all[0].Key != "done" || all[0].Outcome != "refused" || *all[0].Was != "processed" || all[1].Outcome != "replayed" || all[1].JobID == nil || all[1].Was != nil {
		t.Errorf("%+v", all)
	}
	if r := mustPawl(t, db, "inbox", "replay", "orders", "dead", "gone", "--reason", "the account exists now", "--actor", "ann", "--yes"); r.stdout != "delivery dead will run again (job 1, was dead_letter)\ndelivery gone will run again (job "+fmt.Sprint(*all[1].JobID)+", was pending)\n" {
		t.Errorf("%+v", r)
	}
	if r := mustPawl(t, db, "inbox", "show", "orders", "dead"); !strings.Contains(r.stdout, "inbox_replay by ann: the account exists now") {
		t.Errorf("%s", r.stdout)
	}
}
