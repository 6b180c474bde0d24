package doctor

// A question is a query of package catalog, named by its file. Each fact that it returns is a
// finding.
type question struct {
	check string
	query string
	limit func(Limits) int64 // argument of the query; nil: none
	since int                // oldest server that has what it reads, as server_version_num; 0: all
	why   string
	words []words
}

// words are the texts about a fact: templates over its columns, with the functions of forms.
type words struct {
	scope     string // for facts with this value of column scope; empty: for all
	what, fix string
	why       string // default: that of the question
}

func transaction(l Limits) int64 { return l.Transaction.Milliseconds() }
func waiting(l Limits) int64     { return l.Waiting.Milliseconds() }
func overdue(l Limits) int64     { return l.Overdue.Milliseconds() }
func deadRows(l Limits) int64    { return l.DeadRows }

const (
	whySnapshots   = "vacuum removes no row that died since: claims read more and more dead rows, and tables grow"
	whyCollations  = "an index whose order has changed misses rows. Pawl's own keys are in collation C and safe; your business keys and unique constraints may admit duplicates"
	whyHandlers    = "work that would have succeeded a little later is cut off or taken over, and runs again"
	whyRetention   = "no purge runs: the table grows without bound"
	whyRedelivery  = "a message that arrives again after it was forgotten is not recognised as a duplicate"
	fixSynchronous = "turn it on: alter {{.target}} set synchronous_commit = on"
)

// questions are asked in this order, those of one check together.
var questions = []question{
	{check: "durability", query: "durability",
		why: "a server crash may lose commits that were answered: their effects and inbox rows are gone, and the broker has deleted the messages",
		words: []words{
			{scope: "session", what: "{{.setting}} is off here", fix: fixSynchronous},
			{scope: "role setting", what: "{{.setting}} is off for {{.target}}", fix: fixSynchronous},
			{scope: "server", what: "{{.setting}} is off", fix: "turn it on in postgresql.conf"},
		}},
	// A pooler's settings, such as pgbouncer's query_timeout, cannot be seen.
	{check: "timeouts", query: "timeouts",
		why: "it ends statements or sessions of handlers and of Pawl that would have succeeded: the attempts are charged, and run again",
		words: []words{{
			what: "{{.setting}} is {{.value}} {{with .target}}for {{.}}{{else}}on this server{{end}}",
			fix:  "alter {{or .target \"system\"}} reset {{.setting}}, or set it to {{.needs_ms}} ms or more",
		}}},
	{check: "replication", query: "replication",
		why: "synchronous_standby_names promises that answered commits survive the loss of this server",
		words: []words{
			{scope: "session", what: "synchronous_commit is local here: no commit waits for the standbys", fix: fixSynchronous},
			{scope: "role setting", what: "synchronous_commit is local for {{.target}}: its commits wait for no standby", fix: fixSynchronous},
			{scope: "standby", what: "no synchronous standby is connected: every commit waits",
				fix: "start the standby, or, to go on without that promise: alter system set synchronous_standby_names = '', and reload"},
			{scope: "worker", what: "worker {{.worker_id}} ({{.target}}) does not notice that a commit stopped waiting for its standby",
				fix: "call pawl.Watch on the configuration of its pool"},
		}},
	// The cost of a failover now. Only standbys of streaming replication can be seen, not the
	// replication that a provider does below SQL.
	{check: "standbys", query: "standbys", words: []words{
		{scope: "standby", what: "this connection is to a standby",
			why: "a standby takes no claim: workers and consumers that connect so do nothing, and some checks here see old rows",
			fix: "connect to the primary: target_session_attrs=read-write in the URL, with the names of all servers"},
		{scope: "asynchronous", what: `commits wait for no standby: the slowest of {{plural .standbys "standby" "standbys"}} is {{.octets}} octets and {{seconds .seconds}} behind`,
			why: "a failover to it loses that much acknowledged and answered work, effects and inbox rows together: brokers do not redeliver it, and callers that retry run it again",
			fix: "set synchronous_standby_names (Patroni: synchronous_mode and synchronous_mode_strict), or accept the loss: --skip standbys"},
		{scope: "few", what: `{{plural .standbys "standby is" "standbys are"}} connected, and {{.needed}} must have each commit before it is answered`,
			why: "while one is away, for a restart or a failover, every commit waits",
			fix: "connect one standby more than commits wait for, or accept the pause: --skip standbys"},
	}},
	{check: "pooler", query: "presence",
		why: "it holds no presence lock: if its process is killed, its jobs wait for the lease, and until then it counts as alive. No enqueue wakes it: new jobs wait for its next poll",
		words: []words{{
			what: "worker {{.worker_id}} ({{.worker_name}}) keeps its presence through a pooler in transaction or statement mode",
			fix:  "set Presence.URL of that program to a direct connection, or Presence.Off",
		}}},
	{check: "snapshots", query: "transactions", limit: transaction, why: whySnapshots,
		words: []words{{
			what: "session {{.pid}} of {{.username}}{{with .application_name}} ({{.}}){{end}} has had a transaction open since {{second .since}}, and is {{.state}}",
			fix:  "end it: select pg_terminate_backend({{.pid}}); then set idle_in_transaction_session_timeout for that program",
		}}},
	{check: "snapshots", query: "slots", why: whySnapshots,
		words: []words{{
			what: "replication slot {{.name}} holds {{.transactions}} transactions back{{if not .active}}, and has no reader{{end}}",
			fix:  "bring its reader back, or: select pg_drop_replication_slot({{literal .name}})",
		}}},
	{check: "prepared", query: "prepared",
		why: "it holds its locks and its snapshot until it is ended, also after a restart: keys, lanes and jobs it has touched stand still. Pawl does not support PREPARE TRANSACTION",
		words: []words{{
			what: "prepared transaction {{literal .gid}} of {{.owner}} is open since {{second .since}}",
			fix:  "commit prepared {{literal .gid}}, or rollback prepared {{literal .gid}}",
		}}},
	{check: "vacuum", query: "vacuum", limit: deadRows,
		why: "finished work leaves dead rows behind: claims, purges and look-ups read past them, and the tables grow",
		words: []words{
			{scope: "server", what: "autovacuum is off for the whole server", fix: "turn it on: alter system set autovacuum = on; select pg_reload_conf()"},
			{scope: "table", what: "autovacuum is off for pawl.{{.table_name}}", fix: "alter table pawl.{{.table_name}} reset (autovacuum_enabled)"},
			{scope: "rows", what: "pawl.{{.table_name}} has about {{.dead_rows}} dead rows",
				fix: "if a check above names an open transaction, end that first; then: vacuum pawl.{{.table_name}}; and give autovacuum more workers or a shorter naptime"},
		}},
	{check: "indexes", query: "indexes",
		why:   "an invalid index is not used: claims and look-ups read the whole table, and it enforces no uniqueness",
		words: []words{{what: "index pawl.{{.name}} is invalid", fix: "reindex index pawl.{{.name}}"}}},
	{check: "collations", query: "collations", why: whyCollations,
		words: []words{{what: "column {{.table_name}}.{{.column_name}} is in collation {{.collation_name}} and indexed", fix: "bring the schema back: pawl migrate status"}}},
	{check: "collations", query: "collation_version", since: 150000, why: whyCollations,
		words: []words{{
			what: "the collation of this database was made by version {{.made_by}} of its library, which is now at {{or .now_at \"none\"}}",
			fix:  "reindex database {{.target}}; then: alter database {{.target}} refresh collation version",
		}}},
	// Pawl's own functions and reads set their path. The SQL of your programs and administrators
	// may not.
	{check: "path", query: "path",
		why: "an operator or a function created there can run in place of PostgreSQL's own in any statement that does not qualify it, with the rights of the role that sends it",
		words: []words{{
			what: "{{with .role_name}}role {{.}}{{else}}PUBLIC{{end}} may create objects in schema {{.schema_name}}, which is in a search_path",
			fix:  "revoke create on schema {{.schema_name}} from {{or .role_name \"public\"}}; or trust it and skip this check",
		}}},
	// The doctor's own role may see all rows.
	{check: "row_security", query: "row_security",
		why: "programs of that role see no jobs, keys or deliveries, so work waits, or they refuse to start; policies for your tenants must not apply to it",
		words: []words{{
			what: "row level security hides the rows of pawl.{{.table_name}} from {{.roles}}",
			fix: "alter table pawl.{{.table_name}} disable row level security, and keep what turned it on, as an event trigger does, from schema pawl; " +
				"or: create policy pawl on pawl.{{.table_name}} using (true)",
		}}},
	{check: "workers", query: "workers",
		why: "its jobs wait until a worker sweeps, which each does several times a lease: no worker is running here",
		words: []words{{
			what: `worker {{.id}} ({{.name}}) has been silent since {{second .seen_at}}, {{if .past_lease}}past its lease{{else}}and its presence lock is free{{end}}, and holds {{plural .jobs "job" "jobs"}}`,
			fix:  "start a worker of any kind in this database",
		}}},
	// Polling finds the jobs in any case.
	{check: "wakeups", query: "wakeups",
		why: "an idle worker finds a new job at its next poll, after up to 500 ms (Poll), in place of milliseconds",
		words: []words{
			{scope: "server", what: "no enqueue notifies: max_prepared_transactions is {{.state}}, and PREPARE TRANSACTION refuses a transaction that has notified",
				fix: "if nothing uses PREPARE TRANSACTION: alter system set max_prepared_transactions = 0, and restart; otherwise call job.Kick after your commits, and skip this check"},
			{scope: "off", what: "no enqueue wakes worker {{.worker_id}} ({{.worker_name}}): Presence.Off is set",
				fix: "unset Presence.Off; behind a pooler set Presence.URL to a direct connection. If polls are enough, skip this check"},
			{scope: "none", what: "no enqueue wakes worker {{.worker_id}} ({{.worker_name}}): it has no presence connection",
				fix: "see its error event of worker.presence: the server may be out of connections, or Presence.URL is wrong"},
		}},
	{check: "handlers", query: "silence", why: whyHandlers,
		words: []words{{
			what: "worker {{.id}} ({{.name}}) was silent for {{.silent}} s of its lease of {{.lease}} s{{with .until}}, until {{second .}}{{end}}",
			fix:  "raise Lease to twice that or more; or find what stops the process: too little processor time, long pauses, a database that does not answer",
		}}},
	{check: "handlers", query: "handlers", why: whyHandlers,
		words: []words{{
			what: "handler of {{.kind}} in worker {{.id}} ({{.name}}) takes {{.p99_ms}} ms (p99), and is cut off {{if .by_timeout}}at {{.timeout_ms}} ms{{else}}in a deploy after {{.drain_ms}} ms{{end}}",
			fix:  "{{if .by_timeout}}raise its Timeout, or do less in one job{{else}}raise ShutdownTimeout, and what the orchestrator grants; or do less in one job{{end}}",
		}}},
	{check: "waiting", query: "waiting", limit: waiting,
		why: "no worker claims them: none that runs serves the queue and has a handler for the kind, or all are busy",
		words: []words{{
			what: `{{plural .jobs "due job" "due jobs"}} of kind {{.kind}} in queue {{.queue}}, the first since {{second .since}}; none is being worked on`,
			fix: "{{if not .all_report}}run a worker with queue {{.queue}} and a handler for {{.kind}}" +
				"{{else if not .serving}}no worker that runs serves queue {{.queue}}: start one" +
				"{{else if not .knowing}}the workers of queue {{.queue}} have no handler for {{.kind}}: deploy one" +
				"{{else}}the workers of queue {{.queue}} have a handler for {{.kind}}, but all are busy, or their Admit lets nothing in: give it more workers, or Concurrency{{end}}" +
				"; or: pawl jobs list --queue {{word .queue}} --kind {{word .kind}}",
		}}},
	{check: "paused", query: "receiving",
		why: "too many stored deliveries are open (MaxStored), or nearly all that it receives become dead letters (MaxDead): the messages wait at their source",
		words: []words{{
			what: `consumer {{.name}} has paused its receiving, last seen at {{second .at}}; it has {{plural .dead "dead letter" "dead letters"}}`,
			fix:  "the event receive_paused says which, and why; then: pawl dlq list --queue {{word .queue}}; pawl jobs list --queue {{word .queue}}",
		}}},
	{check: "paused", query: "paused", limit: overdue,
		why: "an operator has stopped it, and may have forgotten it: its jobs wait",
		words: []words{{
			what: `queue {{.queue}} is {{.mode}}, with {{plural .due "due job" "due jobs"}}, the first since {{second .since}}{{if .actor}}; {{.actor}} did it at {{second .at}}: {{.reason}}{{end}}`,
			fix:  "if that is over: pawl queues resume {{word .queue}} --reason …",
		}}},
	{check: "schedules", query: "schedules", limit: waiting,
		why: "no keeper enqueues its ticks: none runs, or none can read the schedule",
		words: []words{{
			what: "schedule {{.name}} should have ticked at {{second .tick_at}}",
			fix:  "run a schedule.Keeper, with Config.Cron if the schedule is a cron expression; or pause it: pawl schedules pause {{word .name}} --reason …",
		}}},
	{check: "crashes", query: "crashes",
		why: "their process died, or was silent for longer than its lease: each such job runs again, possibly beside the old attempt",
		words: []words{{
			what: `{{plural .jobs "job" "jobs"}} of kind {{.kind}} in queue {{.queue}} lost a worker, one of them {{plural .crashes "time" "times"}}`,
			fix: "look for the out-of-memory killer and for pauses of the process; if it was alive, raise Lease above its longest pause; " +
				"pawl jobs list --queue {{word .queue}} --kind {{word .kind}}",
		}}},
	// Rows with a final error in tables of package guard. The database knows only the counts of
	// their sweepers, which stop at 1001.
	{check: "rows", query: "rows",
		why: "their work failed permanently or their attempts are used up: no Sweeper of package guard retries them",
		words: []words{{
			what: `{{if gt .rows 1000}}more than 1000 rows{{else}}{{plural .rows "row" "rows"}}{{end}} of table {{.name}} with a final error, counted at {{second .at}}`,
			fix:  "find those in the error status whose last error begins with 'final: '; correct the cause, then set attempt_count to 0 and the status to pending; or set the status to completed",
		}}},
	{check: "retention", query: "retention_tables", limit: overdue, why: whyRetention,
		words: []words{{what: "pawl.{{.name}} has rows that expired more than {{.overdue_hours}} hours ago", fix: "run every hour: pawl purge --table {{.name}} --reason hourly --yes"}}},
	{check: "retention", query: "retention_consumers", limit: overdue, why: whyRetention,
		words: []words{{
			what: "pawl.inbox has deliveries that consumer {{.name}} has not needed to remember for {{.overdue_hours}} hours",
			fix: "a consumer of that name purges while it runs; if none will again: " +
				"pawl purge --table inbox --consumer {{word .name}} --older-than {{.purge_hours}}h --reason retention --yes",
		}}},
	{check: "retention", query: "retention_unreported", limit: overdue, why: whyRetention,
		words: []words{{
			what: "pawl.inbox has deliveries of more than {{.days}} days to {{.name}}, which has never reported how long it remembers",
			fix: "report it with pawl_v1.consumer_report, and run every hour: " +
				"pawl purge --table inbox --consumer {{word .name}} --older-than 672h --reason hourly --yes",
		}}},
	{check: "redelivery", query: "redelivery", why: whyRedelivery,
		words: []words{{
			what: "consumer {{.name}} remembers for {{.remembers}} hours, and its source may deliver for {{.delivers}} hours",
			fix:  "raise the Retention of that consumer",
		}}},
	{check: "redelivery", query: "stale_deliveries", why: whyRedelivery,
		words: []words{{
			what: `older than the memory window, and not run: {{plural .deliveries "delivery" "deliveries"}} to queue {{.queue}}`,
			fix:  "raise the Retention of that consumer, then decide on each: pawl dlq list --queue {{word .queue}}",
		}}},
}
