package dashboard

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/internal/operator"
	"github.com/pawl-go/pawl/ops"
)

// jobs lists the jobs that have not finished.
func jobs(v *view) error {
	v.jobFilter("jobs", true)
	return v.jobList(v.param("status"))
}

// deadLetters lists the jobs that wait for an operator, with the bulk actions for the selection.
func deadLetters(v *view) error {
	v.jobFilter("dead-letters", false)
	v.add(v.bulkLinks())
	if v.param("error") == "" && v.param("after") == "" {
		if err := v.causes(); err != nil {
			return err
		}
	}
	return v.jobList(string(ops.StatusDeadLetter))
}

// Limits of the causes: how many dead letters are read, and how many causes are shown.
const causesOf, mostCauses = 1000, 10

// A cause is a common error of dead letters of one queue and kind. Numbers in the error are shown
// as "…".
type cause struct {
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	Cause string `json:"cause"`
	Jobs  int    `json:"jobs"`
}

// fragment returns the longest part of the error without a number, for the filter of a list.
func (c cause) fragment() (longest string) {
	for part := range strings.SplitSeq(c.Cause, "…") {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// causes adds a table of causes, so that ten thousand dead letters of one cause are one line.
func (v *view) causes() error {
	s, err := v.selected(string(ops.StatusDeadLetter))
	if err != nil {
		return err
	}
	query := catalog.JobQuery{Queue: s.Queue, Kind: s.Kind, Statuses: []string{string(ops.StatusDeadLetter)}, OlderThan: s.OlderThan}
	found, err := see(v, func(ctx context.Context, db pawl.DB) ([]cause, error) {
		return catalog.JobCauses[cause](ctx, db, query, causesOf, mostCauses)
	})
	if err != nil {
		v.add(note{Class: "trouble", Text: "The causes: " + trouble(err)})
		return nil
	}
	t := table{Caption: "What they died of", Head: []string{"#dead letters", "queue", "kind", "last error, without its numbers"}}
	told := 0
	for _, c := range found {
		told += c.Jobs
		t.Rows = append(t.Rows, []cell{linked(number(c.Jobs), v.Link.To("dead-letters", "queue", c.Queue, "kind", c.Kind, "older_than", v.param("older_than"), "error", c.fragment())),
			linked(c.Queue, v.Link.Queue(c.Queue)), plain(c.Kind), plain(short(200, c.Cause))})
	}
	if told == causesOf || len(found) == mostCauses {
		t.Caption = fmt.Sprintf("What the first %s died of, the most frequent causes", number(causesOf))
	}
	if told > 1 {
		v.add(t)
	}
	return nil
}

func (v *view) jobFilter(page string, any bool) {
	fields := []field{{Name: "queue", Label: "queue"}, {Name: "kind", Label: "kind"}, {Name: "older_than", Label: "older than", Help: "90m, 720h"},
		{Name: "error", Label: "last error contains (slow)"}}
	if any {
		fields = append(fields, statusField(ops.JobStatuses()))
	}
	v.filter(page, fields...)
}

func (v *view) selected(status string) (s ops.Jobs, err error) {
	s = ops.Jobs{Queue: v.param("queue"), Kind: v.param("kind"), Error: v.param("error"), After: v.param("after")}
	if status != "" {
		s.Statuses = []ops.Status{ops.Status(status)}
	}
	if age := v.param("older_than"); age != "" {
		if s.OlderThan, err = time.ParseDuration(age); err != nil || s.OlderThan <= 0 {
			return s, badParameter{"older_than", age, "a duration above zero, such as 90m or 720h"}
		}
	}
	return s, nil
}

func (v *view) jobList(status string) error {
	s, err := v.selected(status)
	if err != nil {
		return err
	}
	t := jobTable("Jobs in the order of their ids")
	if v.Page.pattern == "/dead-letters" {
		t.Empty = noDead
	}
	return list(v, t, s.List, v.jobCells)
}

func jobTable(caption string) table {
	return table{Caption: caption, Empty: noJobs, Head: []string{"#id", "queue", "kind", "key", "status", "#attempts", "enqueued", "last error", "on a retry"}}
}

func (v *view) jobCells(j ops.Job) []cell {
	v.ReadAt = j.ReadAt
	return []cell{linked(j.ID, v.Link.Job(j.ID)), linked(j.Queue, v.Link.Queue(j.Queue)), plain(j.Kind), v.storyCell(j.Key, ""),
		status(j.Status), plain(attempts(j)), plain(ago(j.CreatedAt, j.ReadAt)), plain(short(120, j.LastError)), doubling(j)}
}

func attempts(j ops.Job) string { return fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts) }

// doubling warns if a retry may take effect a second time.
func doubling(j ops.Job) cell {
	if j.MayDouble() {
		return cell{Text: "may take effect a second time", Class: "bad"}
	}
	return plain("")
}

// jobCell is the id of a job with a link to it; 0 means none.
func (v *view) jobCell(id int64) cell {
	if id == 0 {
		return cell{}
	}
	return linked(id, v.Link.Job(id))
}

// storyCell is a key with a link to its story.
func (v *view) storyCell(key, scope string) cell {
	if key == "" {
		return cell{}
	}
	return cell{Text: short(80, key), Link: v.Link.Story(key, scope), Mono: true}
}

// job shows one job. A finished job is shown if the archive or the audit has it.
func job(v *view) error {
	id, err := v.id("id")
	if err != nil {
		return err
	}
	v.Title = fmt.Sprintf("Job %d", id)
	ref := ops.JobRef{ID: id}
	j, err := see(v, ref.Get)
	if errors.Is(err, pawl.ErrNotFound) {
		return v.endedJob(ref)
	}
	if err != nil {
		return err
	}
	v.ReadAt = j.ReadAt
	switch {
	case j.MayDouble():
		v.add(note{Class: "notice", Text: "A retry may take effect a second time.", Hint: "read the last error, and compare with what is in your tables"})
	case j.Status == ops.StatusDeadLetter:
		v.add(note{Class: "notice", Text: "It is not tried again until you decide.", Hint: "read the last error, repair the cause, then retry; or discard what is not wanted any more"})
	case j.Status == ops.StatusUnknown:
		v.add(note{Class: "notice", Text: "A call of this job was sent, and no answer was recorded. The job waits for a verdict on that call.",
			Hint: "open the call below, and say what the provider answered"})
	}
	v.add(v.jobFacts(j))
	v.add(v.actions(operator.Job(j)))
	v.add(heading("Attempts that failed"), v.errorTable(j.Errors))
	if len(j.Steps) > 0 {
		t := stepTable
		for _, s := range j.Steps {
			t.Rows = append(t.Rows, v.stepCells(s))
		}
		v.add(heading("Calls of other systems"), t)
	}
	v.byHand(j.Changes)
	return nil
}

func (v *view) jobFacts(j ops.Job) facts {
	all := facts{
		{"status", status(j.Status)}, {"queue", linked(j.Queue, v.Link.Queue(j.Queue))}, {"kind", plain(j.Kind)}, {"key", v.storyCell(j.Key, "")},
		{"story", linked("everything that is known of this job", v.Link.Story(strconv.FormatInt(j.ID, 10), ""))},
		{"attempts", plain(attempts(j))}, {"process deaths in hand", figure(j.Crashes)}, {"fence", plain(j.Fence)}, {"priority", plain(j.Priority)},
		{"enqueued", at(j.CreatedAt)}, {"not before", at(j.AvailableAt)}, {"last error", plain(j.LastError)}, {"its code", plain(j.LastCode)},
	}
	if j.Lane != "" {
		all = append(all, fact{"lane", linked(j.Lane, v.Link.Lane(j.Queue, j.Lane))}, fact{"position in the lane", plain(j.Position)})
	}
	if !j.LeaseExpiresAt.IsZero() {
		all = append(all, fact{"running in", plain(j.Worker)}, fact{"lease until", at(j.LeaseExpiresAt)}, fact{"last heartbeat", at(j.WorkerSeenAt)})
	}
	if !j.FinishedAt.IsZero() {
		all = append(all, fact{"finished", at(j.FinishedAt)})
	}
	payload := plain(octets(j.PayloadOctets))
	if v.User.MaySeePayloads {
		payload = cell{Text: octets(j.PayloadOctets) + ": show it (this is logged)", Link: v.Link.To("payload", "id", j.ID)}
	}
	return append(all, fact{"payload", payload})
}

// endedJob shows a job that has no row any more.
func (v *view) endedJob(ref ops.JobRef) error {
	j, err := see(v, ref.Archived)
	if err != nil && !errors.Is(err, pawl.ErrNotFound) {
		return err
	}
	archived := err == nil
	changes, err := see(v, ref.Changes)
	switch {
	case err != nil:
		return err
	case !archived && len(changes) == 0:
		v.Page.live, v.status = false, http.StatusNotFound
		v.add(note{Class: "trouble", Text: fmt.Sprintf("There is no job %d.", ref.ID), Hint: "it has succeeded, or there never was one: finished jobs are deleted, unless their queue keeps them"})
	case archived:
		v.ReadAt = j.ReadAt
		v.add(note{Class: "notice", Text: "This job has finished. Its queue keeps finished jobs for seven days."}, v.jobFacts(j))
	default:
		v.add(note{Class: "notice", Text: "This job has finished or was discarded. Only the audit knows it."})
	}
	v.byHand(changes)
	return nil
}

func (v *view) errorTable(all []ops.JobError) table {
	t := table{Caption: "The last 10 attempts that failed, the newest first", Head: []string{"at", "#attempt", "#fence", "worker", "code", "error"}, Empty: empty{Text: "No attempt has failed."}}
	for i := len(all) - 1; i >= 0; i-- {
		e := all[i]
		t.Rows = append(t.Rows, []cell{at(e.At), figure(e.Attempt), {Text: number(e.Fence)}, mono(e.Worker), mono(e.Code), plain(e.Error)})
	}
	return t
}

// maxShown bounds the part of a payload that is shown.
const maxShown = 64 << 10

// payload shows the payload of a job to a user with MaySeePayloads, and logs that.
func payload(v *view) error {
	if !v.User.MaySeePayloads {
		return fmt.Errorf("%w: you may not see payloads", errForbidden)
	}
	id, err := v.id("id")
	if err != nil {
		return err
	}
	v.Title = fmt.Sprintf("Payload of job %d", id)
	j, err := see(v, func(ctx context.Context, db pawl.DB) (ops.Job, error) {
		j, err := (ops.JobRef{ID: id}).Get(ctx, db)
		if errors.Is(err, pawl.ErrNotFound) {
			return (ops.JobRef{ID: id}).Archived(ctx, db)
		}
		return j, err
	})
	if err != nil {
		return err
	}
	v.h.cfg.Logger.InfoContext(v.ctx(), "dashboard: payload shown", "user", v.User.Name, "job", id)
	body := j.Payload
	if v.h.cfg.Redact != nil {
		body, err = callback.Get("Redact", func() []byte { return v.h.cfg.Redact(Payload{Queue: j.Queue, Kind: j.Kind, JobID: id, Body: body}) })
		if err != nil {
			return err
		}
	}
	v.add(verbs{{Text: "Back to the job", Link: v.Link.Job(id)}})
	if len(body) > maxShown {
		v.add(note{Class: "notice", Text: fmt.Sprintf("These are the first %s of %s.", octets(maxShown), octets(len(body)))})
		body = body[:maxShown]
	}
	if !utf8.Valid(body) && len(body) < maxShown {
		v.add(note{Class: "notice", Text: "The payload is not text. It is shown in hexadecimal."})
		v.add(text(hex.Dump(body)))
		return nil
	}
	v.add(text(strings.ToValidUTF8(string(body), "\uFFFD")))
	return nil
}

func (v *view) id(name string) (int64, error) {
	value := v.param(name)
	id, err := strconv.ParseInt(value, 10, 64)
	if err != nil || id < 1 {
		return 0, badParameter{name, value, "the id of a job: a whole number above zero"}
	}
	return id, nil
}
