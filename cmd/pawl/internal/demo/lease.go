package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/fleet"
	"github.com/pawl-go/pawl/internal/testbed/provider"
	"github.com/pawl-go/pawl/job"
)

// A letter is mailed in each of two acts. In the first, the worker is killed while the mail server
// sends. In the second, it is frozen past its lease after the mail was recorded as sent, and wakes
// up when another worker has done the rest.

// letterLease is long enough to watch.
const letterLease = 5 * time.Second

// watchFirst is how old a worker's session must be before it treats a free presence lock as a
// death.
const watchFirst = 6 * time.Second

func letterQueue(schema string) string { return "letters/" + schema }

// mailLimit is the timeout of the mail server. After a crash, the next worker probes only when the
// call can no longer arrive.
const mailLimit = 3 * time.Second

// A LeaseReport is the result of the two acts, and the JSON output of --lease.
type LeaseReport struct {
	Letters int     `json:"letters"` // number of jobs, each of which is one mail and one row
	Mails   int     `json:"mails"`   // mails that the mail server sent
	Rows    int     `json:"rows"`    // in PostgreSQL
	Lost    int     `json:"lost"`    // letters without a mail or without a row
	Doubled int     `json:"doubled"` // letters with more than one of either
	Refused int     `json:"refused"` // refused writes of the frozen worker
	Lease   float64 `json:"lease_seconds"`
	// Killed is the time from the SIGKILL to the next claim, after the presence lock was free.
	Killed float64 `json:"killed_seconds"`
	// Frozen is the time from the SIGSTOP to the next claim, after the lease expired.
	Frozen float64 `json:"frozen_seconds"`

	Schema    string `json:"schema,omitempty"` // as in Report
	Directory string `json:"directory,omitempty"`
}

// OK reports whether the promise was kept.
func (r LeaseReport) OK() bool {
	return r.Mails == r.Letters && r.Rows == r.Letters && r.Lost+r.Doubled == 0 && r.Refused > 0
}

// RunLease plays the two acts and reports each step to display. An error means that it could not
// run.
func RunLease(ctx context.Context, o Options, display Display) (LeaseReport, error) {
	return limited(ctx, o, display, runLease)
}

func runLease(ctx context.Context, o Options, display Display) (r LeaseReport, err error) {
	o.Workers = 2
	database, err := openDatabase(ctx, o, display)
	if err != nil {
		return r, err
	}
	defer database.close(ctx)
	mail := provider.New(0, func(n int, _ *http.Request) provider.Lie {
		if n == 0 {
			return provider.TimeOutAfter // it answers late, so that the SIGKILL comes first
		}
		return ""
	})
	url, closeMail, err := serve(mail)
	if err != nil {
		return r, err
	}
	defer closeMail()
	s := &stage{display: display, database: database, mail: mail, began: time.Now(),
		crew: newCrew(o.Executable, workerConfig{DatabaseURL: database.url, Schema: database.schema, Letters: url})}
	s.crew.said = s.relay
	defer s.crew.KillAll()
	if err := s.crew.Start(ctx, o.Workers); err != nil {
		return r, err
	}
	s.say("a worker that has just started does not treat a free presence lock as a death yet: waiting")
	watched := time.Now().Add(watchFirst)
	if err := s.until(ctx, "the workers have watched", func() (bool, error) { return time.Now().After(watched), nil }); err != nil {
		return r, err
	}
	if r.Killed, err = s.kill(ctx); err != nil {
		return r, err
	}
	if r.Frozen, err = s.freeze(ctx); err != nil {
		return r, err
	}
	if err := s.crew.Drain(ctx); err != nil {
		return r, err
	}
	r.Letters, r.Mails, r.Refused, r.Lease = 2, len(mail.Charges()), int(s.crew.events.count("stale_write_refused")), letterLease.Seconds()
	if err = s.count(ctx, &r); err == nil && o.Keep {
		r.Schema, r.Directory = database.schema, database.directory
	}
	return r, err
}

// A stage holds the participants of the two acts.
type stage struct {
	display  Display
	database *database
	crew     *crew
	mail     *provider.Server
	began    time.Time
	heard    tally // lines of workers, without their names
}

func (s *stage) relay(line string) {
	s.say(line)
	said := strings.SplitN(line, " ", 3) // "process", its number, and the rest
	s.heard.add(said[len(said)-1])
}

func (s *stage) say(line string) {
	s.display.Note(fmt.Sprintf("%5.1fs  %s", time.Since(s.began).Seconds(), line))
}

// kill is the first act.
func (s *stage) kill(ctx context.Context) (seconds float64, err error) {
	s.display.Note("\nAct 1: SIGKILL while the mail is being sent")
	first, err := s.send(ctx, 1, func() (bool, error) { return len(s.mail.Charges()) == 1, nil })
	if err != nil {
		return 0, err
	}
	s.say("the mail server has sent the mail and has not answered yet: SIGKILL to " + first.worker)
	w, err := s.workerOf(first)
	if err != nil {
		return 0, err
	}
	at := time.Now()
	s.crew.Kill(w)
	if err := s.takenOver(ctx, first); err != nil {
		return 0, err
	}
	return round(time.Since(at).Seconds()), s.done(ctx, 1)
}

// freeze is the second act.
func (s *stage) freeze(ctx context.Context) (seconds float64, err error) {
	s.display.Note("\nAct 2: SIGSTOP before the worker writes its row, SIGCONT when all is over")
	for _, w := range s.crew.Workers() {
		s.crew.Arm(w, "step.record.after", "stop")
	}
	first, err := s.send(ctx, 2, func() (recorded bool, err error) {
		var steps int
		err = s.database.conn.QueryRow(ctx, "select pg_catalog.count(*) from pawl.step as e where e.scope operator(pg_catalog.=) $1 and e.status operator(pg_catalog.=) 'succeeded'",
			"job/"+letterQueue(s.database.schema)).Scan(&steps)
		return steps == 2, err
	})
	if err != nil {
		return 0, err
	}
	w, err := s.workerOf(first)
	if err != nil {
		return 0, err
	}
	s.say(first.worker + " is frozen (SIGSTOP); its connections are open, so it counts as present until its lease expires")
	at := time.Now()
	if err := s.takenOver(ctx, first); err != nil {
		return 0, err
	}
	seconds = round(time.Since(at).Seconds())
	if err := s.done(ctx, 2); err != nil {
		return 0, err
	}
	s.say("SIGCONT to " + first.worker)
	if !s.crew.Wake(w) {
		return 0, fmt.Errorf("%s is gone", first.worker)
	}
	return seconds, s.until(ctx, "the frozen worker is refused", func() (bool, error) {
		return s.crew.events.count("stale_write_refused") > 0, nil
	})
}

// held is the worker that holds a letter.
type held struct {
	worker string // "process 123"
	pid    int    // 0: no worker
	fence  int64
	over   bool          // the job has ended
	left   time.Duration // rest of the lease
}

func letter(n int64) string { return fmt.Sprintf("letter-%d", n) }

// send enqueues the nth letter. It waits until reached returns true and the letter's worker has
// reported that it sends the mail. It returns that worker.
func (s *stage) send(ctx context.Context, n int64, reached func() (bool, error)) (h held, err error) {
	key := letter(n)
	if _, err := job.Enqueue(ctx, s.database.conn, job.Request{Queue: letterQueue(s.database.schema), Kind: letterKind, Payload: []byte(key)}); err != nil {
		return h, err
	}
	err = s.until(ctx, key+" is on its way", func() (bool, error) {
		if h, err = s.holder(ctx); h.pid == 0 || err != nil || s.heard.count(handsMail) < n {
			return false, err
		}
		return reached()
	})
	return h, err
}

// takenOver prints the remaining lease until another worker holds the letter.
func (s *stage) takenOver(ctx context.Context, first held) error {
	told, left := time.Now(), first.left
	return s.until(ctx, "another worker takes over", func() (bool, error) {
		now, err := s.holder(ctx)
		switch {
		case err != nil:
			return false, err
		case now.fence > first.fence || now.over:
			if left > time.Second {
				s.say(fmt.Sprintf("  %.1f s before the lease of %s expired: its presence lock was free, so it had died", left.Seconds(), first.worker))
			}
			return true, nil
		}
		if now.pid == 0 {
			return false, nil // released, and not claimed yet
		}
		if left = now.left; time.Since(told) >= time.Second {
			told = time.Now()
			s.say(fmt.Sprintf("  still held by %s with fence %d, its lease ends in %.1f s", now.worker, now.fence, left.Seconds()))
		}
		return false, nil
	})
}

// done waits until the nth letter's job has ended and its worker has reported it.
func (s *stage) done(ctx context.Context, n int64) error {
	return s.until(ctx, letter(n)+" is done", func() (bool, error) {
		h, err := s.holder(ctx)
		return h.over && s.heard.count(wroteRow) >= n, err
	})
}

// holder reads which worker holds the current letter.
func (s *stage) holder(ctx context.Context) (h held, err error) {
	var name string
	var left float64
	err = s.database.conn.QueryRow(ctx, `select j.fence, coalesce(w.name, ''), coalesce(extract(epoch from w.seen_at operator(pg_catalog.+) w.lease operator(pg_catalog.-) pg_catalog.clock_timestamp()), 0)
		  from pawl.job as j
		  left join pawl.worker as w on w.id operator(pg_catalog.=) j.claimed_by
		 where j.queue operator(pg_catalog.=) $1`, letterQueue(s.database.schema)).Scan(&h.fence, &name, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return held{over: true}, nil
	}
	_, pid, _ := strings.Cut(name, "/")
	h.pid, _ = strconv.Atoi(pid)
	h.worker, h.left = processName(h.pid), time.Duration(max(left, 0)*float64(time.Second))
	return h, err
}

func processName(pid int) string { return fmt.Sprintf("process %d", pid) }

func (s *stage) workerOf(h held) (*fleet.Worker, error) {
	for _, w := range s.crew.Workers() {
		if w.PID() == h.pid {
			s.crew.Doom(w)
			return w, nil
		}
	}
	return nil, fmt.Errorf("%s is none of ours", h.worker)
}

// until polls often, so that lines are printed in time.
func (s *stage) until(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		if held, err := holds(); held || err != nil {
			return err
		}
		select {
		case err := <-s.crew.Failed():
			return err
		case <-s.database.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("%w, waiting until %s", context.Cause(ctx), what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// count compares the letters with the mails and rows.
func (s *stage) count(ctx context.Context, r *LeaseReport) error {
	// the error is also in rows
	rows, _ := s.database.conn.Query(ctx, inSchema("select l.key from SCHEMA.letters as l", s.database.schema))
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	r.Rows = len(keys)
	mails, written := map[string]int{}, map[string]int{}
	for _, c := range s.mail.Charges() {
		mails[c.Body]++
	}
	for _, key := range keys {
		written[key]++
	}
	for _, key := range []string{letter(1), letter(2)} {
		if mails[key] == 0 || written[key] == 0 {
			r.Lost++
		}
		if mails[key] > 1 || written[key] > 1 {
			r.Doubled++
		}
	}
	return nil
}
