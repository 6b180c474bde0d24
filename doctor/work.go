package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/text"
)

func checkWorkers(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		ID        int64     `json:"id"`
		Name      string    `json:"name"`
		SeenAt    time.Time `json:"seen_at"`
		PastLease bool      `json:"past_lease"`
		Jobs      int       `json:"jobs"`
	}
	return findings(ctx, db, "workers", func(f fact) Finding {
		how := "and its presence lock is free"
		if f.PastLease {
			how = "past its lease"
		}
		return Finding{What: fmt.Sprintf("worker %d (%s) has been silent since %s, %s, and holds %s", f.ID, f.Name, second(f.SeenAt), how, text.Plural(f.Jobs, "job", "jobs")),
			Why: "its jobs wait until a worker sweeps, which each does several times a lease: no worker is running here",
			Fix: "start a worker of any kind in this database"}
	})
}

// checkWakeups finds settings that keep enqueues from waking idle workers. Polling finds the jobs
// in any case.
func checkWakeups(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Scope string `json:"scope"` // "server" or "worker"
		ID    int64  `json:"worker_id"`
		Name  string `json:"worker_name"`
		State string `json:"state"` // of a worker "off" or "none"; of the server: the setting
	}
	return findings(ctx, db, "wakeups", func(f fact) Finding {
		found := Finding{Why: "an idle worker finds a new job at its next poll, after up to 500 ms (Poll), in place of milliseconds"}
		switch {
		case f.Scope == "server":
			found.What = "no enqueue notifies: max_prepared_transactions is " + f.State + ", and PREPARE TRANSACTION refuses a transaction that has notified"
			found.Fix = "if nothing uses PREPARE TRANSACTION: alter system set max_prepared_transactions = 0, and restart; otherwise call job.Kick after your commits, and skip this check"
		case f.State == "off":
			found.What = fmt.Sprintf("no enqueue wakes worker %d (%s): Presence.Off is set", f.ID, f.Name)
			found.Fix = "unset Presence.Off; behind a pooler set Presence.URL to a direct connection. If polls are enough, skip this check"
		default:
			found.What = fmt.Sprintf("no enqueue wakes worker %d (%s): it has no presence connection", f.ID, f.Name)
			found.Fix = "see its error event of worker.presence: the server may be out of connections, or Presence.URL is wrong"
		}
		return found
	})
}

func checkHandlers(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	const why = "work that would have succeeded a little later is cut off or taken over, and runs again"
	type silence struct {
		ID     int64     `json:"id"`
		Name   string    `json:"name"`
		Silent string    `json:"silent"`
		Lease  string    `json:"lease"`
		Until  time.Time `json:"until"`
	}
	type handler struct {
		Kind      string `json:"kind"`
		ID        int64  `json:"id"`
		Name      string `json:"name"`
		P99       string `json:"p99_ms"`
		Timeout   string `json:"timeout_ms"`
		Drain     string `json:"drain_ms"`
		ByTimeout bool   `json:"by_timeout"`
	}
	found, err := findings(ctx, db, "silence", func(f silence) Finding {
		what := fmt.Sprintf("worker %d (%s) was silent for %s s of its lease of %s s", f.ID, f.Name, f.Silent, f.Lease)
		if !f.Until.IsZero() {
			what += ", until " + second(f.Until)
		}
		return Finding{Why: why, What: what,
			Fix: "raise Lease to twice that or more; or find what stops the process: too little processor time, long pauses, a database that does not answer"}
	})
	return both(found, err, func() ([]Finding, error) {
		return findings(ctx, db, "handlers", func(f handler) Finding {
			limit, fix := "in a deploy after "+f.Drain+" ms", "raise ShutdownTimeout, and what the orchestrator grants; or do less in one job"
			if f.ByTimeout {
				limit, fix = "at "+f.Timeout+" ms", "raise its Timeout, or do less in one job"
			}
			return Finding{Why: why, Fix: fix, What: fmt.Sprintf("handler of %s in worker %d (%s) takes %s ms (p99), and is cut off %s", f.Kind, f.ID, f.Name, f.P99, limit)}
		})
	})
}

func checkWaiting(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	type fact struct {
		Jobs      int       `json:"jobs"`
		Kind      string    `json:"kind"`
		Queue     string    `json:"queue"`
		Since     time.Time `json:"since"`
		AllReport bool      `json:"all_report"` // every running worker
		Serving   int       `json:"serving"`    // workers of the queue
		Knowing   int       `json:"knowing"`    // those with a handler for the kind
	}
	return findings(ctx, db, "waiting", func(f fact) Finding {
		var fix string
		switch {
		case !f.AllReport:
			fix = "run a worker with queue " + f.Queue + " and a handler for " + f.Kind
		case f.Serving == 0:
			fix = "no worker that runs serves queue " + f.Queue + ": start one"
		case f.Knowing == 0:
			fix = "the workers of queue " + f.Queue + " have no handler for " + f.Kind + ": deploy one"
		default:
			fix = "the workers of queue " + f.Queue + " have a handler for " + f.Kind + ", but all are busy, or their Admit lets nothing in: give it more workers, or Concurrency"
		}
		return Finding{What: fmt.Sprintf("%s of kind %s in queue %s, the first since %s; none is being worked on", text.Plural(f.Jobs, "due job", "due jobs"), f.Kind, f.Queue, second(f.Since)),
			Why: "no worker claims them: none that runs serves the queue and has a handler for the kind, or all are busy",
			Fix: fix + "; or: pawl jobs list --queue " + text.ShellWord(f.Queue) + " --kind " + text.ShellWord(f.Kind)}
	}, l.Waiting.Milliseconds())
}

func checkPaused(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	type receiver struct {
		Name string    `json:"name"`
		At   time.Time `json:"at"`
		Dead int       `json:"dead"` // dead letters, up to 1000
	}
	found, err := findings(ctx, db, "receiving", func(f receiver) Finding {
		return Finding{What: fmt.Sprintf("consumer %s has paused its receiving, last seen at %s; it has %s", f.Name, second(f.At), text.Plural(f.Dead, "dead letter", "dead letters")),
			Why: "too many stored deliveries are open (MaxStored), or nearly all that it receives become dead letters (MaxDead): the messages wait at their source",
			Fix: "the event receive_paused says which, and why; then: pawl dlq list --queue " + text.ShellWord("inbox/"+f.Name) + "; pawl jobs list --queue " + text.ShellWord("inbox/"+f.Name)}
	})
	return both(found, err, func() ([]Finding, error) { return pausedQueues(ctx, db, l) })
}

func pausedQueues(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	type fact struct {
		Queue  string    `json:"queue"`
		Mode   string    `json:"mode"`
		Due    int       `json:"due"`
		Since  time.Time `json:"since"`
		Actor  string    `json:"actor"` // empty: not in the audit
		At     time.Time `json:"at"`
		Reason string    `json:"reason"`
	}
	return findings(ctx, db, "paused", func(f fact) Finding {
		what := fmt.Sprintf("queue %s is %s, with %s, the first since %s", f.Queue, f.Mode, text.Plural(f.Due, "due job", "due jobs"), second(f.Since))
		if f.Actor != "" {
			what += fmt.Sprintf("; %s did it at %s: %s", f.Actor, second(f.At), f.Reason)
		}
		return Finding{What: what, Why: "an operator has stopped it, and may have forgotten it: its jobs wait",
			Fix: "if that is over: pawl queues resume " + text.ShellWord(f.Queue) + " --reason …"}
	}, l.Overdue.Milliseconds())
}

func checkSchedules(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	type fact struct {
		Name   string    `json:"name"`
		TickAt time.Time `json:"tick_at"`
	}
	return findings(ctx, db, "schedules", func(f fact) Finding {
		return Finding{What: fmt.Sprintf("schedule %s should have ticked at %s", f.Name, second(f.TickAt)),
			Why: "no keeper enqueues its ticks: none runs, or none can read the schedule",
			Fix: "run a schedule.Keeper, with Config.Cron if the schedule is a cron expression; or pause it: pawl schedules pause " + text.ShellWord(f.Name) + " --reason …"}
	}, l.Waiting.Milliseconds())
}

func checkCrashes(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Jobs    int    `json:"jobs"`
		Kind    string `json:"kind"`
		Queue   string `json:"queue"`
		Crashes int    `json:"crashes"`
	}
	return findings(ctx, db, "crashes", func(f fact) Finding {
		return Finding{What: fmt.Sprintf("%s of kind %s in queue %s lost a worker, one of them %s", text.Plural(f.Jobs, "job", "jobs"), f.Kind, f.Queue, text.Plural(f.Crashes, "time", "times")),
			Why: "their process died, or was silent for longer than its lease: each such job runs again, possibly beside the old attempt",
			Fix: "look for the out-of-memory killer and for pauses of the process; if it was alive, raise Lease above its longest pause; pawl jobs list --queue " + text.ShellWord(f.Queue) + " --kind " + text.ShellWord(f.Kind)}
	})
}

// checkRows reports rows with a final error in tables of package guard. The database knows only the
// counts of their sweepers.
func checkRows(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	type fact struct {
		Name string    `json:"name"`
		Rows int       `json:"rows"` // 1001: more than 1,000
		At   time.Time `json:"at"`
	}
	return findings(ctx, db, "rows", func(f fact) Finding {
		rows := text.Plural(f.Rows, "row", "rows")
		if f.Rows > 1000 {
			rows = "more than 1000 rows"
		}
		return Finding{What: fmt.Sprintf("%s of table %s with a final error, counted at %s", rows, f.Name, second(f.At)),
			Why: "their work failed permanently or their attempts are used up: no Sweeper of package guard retries them",
			Fix: "find those in the error status whose last error begins with 'final: '; correct the cause, then set attempt_count to 0 and the status to pending; or set the status to completed"}
	})
}

func checkRetention(ctx context.Context, db pawl.DB, l Limits) ([]Finding, error) {
	const why = "no purge runs: the table grows without bound"
	overdue, hours := l.Overdue.Milliseconds(), int64(l.Overdue/time.Hour)
	type named struct {
		Name string `json:"name"`
	}
	type remembers struct {
		Name  string `json:"name"`
		Hours int64  `json:"hours"` // its memory window
	}
	found, err := findings(ctx, db, "retention_tables", func(f named) Finding {
		return Finding{Why: why, What: fmt.Sprintf("pawl.%s has rows that expired more than %d hours ago", f.Name, hours),
			Fix: "run every hour: pawl purge --table " + f.Name + " --reason hourly --yes"}
	}, overdue)
	found, err = both(found, err, func() ([]Finding, error) {
		return findings(ctx, db, "retention_consumers", func(f remembers) Finding {
			return Finding{Why: why, What: fmt.Sprintf("pawl.inbox has deliveries that consumer %s has not needed to remember for %d hours", f.Name, hours),
				Fix: fmt.Sprintf("a consumer of that name purges while it runs; if none will again: pawl purge --table inbox --consumer %s --older-than %dh --reason retention --yes", text.ShellWord(f.Name), f.Hours+1)}
		}, overdue)
	})
	return both(found, err, func() ([]Finding, error) {
		return findings(ctx, db, "retention_unreported", func(f named) Finding {
			return Finding{Why: why, What: fmt.Sprintf("pawl.inbox has deliveries of more than %d days to %s, which has never reported how long it remembers", 28+hours/24, f.Name),
				Fix: "report it with pawl_v1.consumer_report, and run every hour: pawl purge --table inbox --consumer " + text.ShellWord(f.Name) + " --older-than 672h --reason hourly --yes"}
		}, overdue)
	})
}

func checkRedelivery(ctx context.Context, db pawl.DB, _ Limits) ([]Finding, error) {
	const why = "a message that arrives again after it was forgotten is not recognised as a duplicate"
	type short struct {
		Name      string `json:"name"`
		Remembers int64  `json:"remembers"` // in hours, like Delivers
		Delivers  int64  `json:"delivers"`
	}
	type late struct {
		Deliveries int    `json:"deliveries"`
		Queue      string `json:"queue"`
	}
	found, err := findings(ctx, db, "redelivery", func(f short) Finding {
		return Finding{Why: why, Fix: "raise the Retention of that consumer",
			What: fmt.Sprintf("consumer %s remembers for %d hours, and its source may deliver for %d hours", f.Name, f.Remembers, f.Delivers)}
	})
	return both(found, err, func() ([]Finding, error) {
		return findings(ctx, db, "stale_deliveries", func(f late) Finding {
			return Finding{Why: why, What: fmt.Sprintf("older than the memory window, and not run: %s to queue %s", text.Plural(f.Deliveries, "delivery", "deliveries"), f.Queue),
				Fix: "raise the Retention of that consumer, then decide on each: pawl dlq list --queue " + text.ShellWord(f.Queue)}
		})
	})
}
