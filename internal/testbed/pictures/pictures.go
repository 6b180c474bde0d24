package pictures

// All are the pictures, in the order of their pages.
var All = []Picture{Job, Command, Step, Lease, Lane, Stored, Crash, Failover, Overview, Service, Filter, Webhook}

// Job shows the states of a job.
var Job = Picture{
	Name: "job-states", Domain: "job_status", High: 392,
	Alt: "States of a job. job_enqueue makes it pending, or waiting while its lane is busy, until it has the turn. job_claim makes it " +
		"processing. If it fails, is given back, or its worker dies, it is pending again. job_finish ends it as succeeded, with your rows. " +
		"A call in doubt makes it unknown, spent attempts make it a dead_letter, and job_cancel makes it cancelled, also from pending or waiting. step_settle makes an " +
		"unknown job pending again, job_retry the other two.",
	Boxes: []Box{
		{59, 6, 10, 10, "", "dot"}, {8, 40, 112, 44, "`pending`", "state"}, {252, 36, 92, 28, "`waiting`", "state"},
		{8, 206, 112, 52, "`processing`", "state"}, {252, 162, 92, 28, "`unknown`", "bad"}, {252, 218, 92, 28, "`dead_letter`", "bad"},
		{252, 274, 92, 28, "`cancelled`", "state"}, {8, 354, 112, 28, "`succeeded`", "good"},
	},
	Lines: []Line{
		{"64,16 64,40", "", "", "pending", []string{"job_enqueue"}},
		{"69,11 298,11 298,36", "", "", "waiting", []string{"job_enqueue"}},
		{"252,50 120,50", "", "waiting", "pending", []string{"lane_promote"}},
		{"22,84 22,206", "", "pending", "processing", []string{"job_claim"}},
		{"106,206 106,84", "", "processing", "pending", []string{"job_fail", "job_release", "job_sweep"}},
		{"120,222 132,222 132,176 252,176", "bad", "processing", "unknown", []string{"job_fail"}},
		{"120,232 252,232", "bad", "processing", "dead_letter", []string{"job_fail", "job_sweep"}},
		{"120,242 132,242 132,288 252,288", "", "processing", "cancelled", []string{"job_cancel"}},
		{"344,176 354,176 354,76 120,76", "", "unknown", "pending", []string{"step_settle", "step_end"}},
		{"344,232 354,232 354,76 120,76", "", "dead_letter", "pending", []string{"job_retry"}},
		{"344,288 354,288 354,76 120,76", "", "cancelled", "pending", []string{"job_retry"}},
		{"64,258 64,354", "good", "processing", "succeeded", []string{"job_finish"}},
	},
	Texts: []Text{
		{72, 29, "`job_enqueue`", "", ""}, {292, 29, "its lane is busy", "", "end"}, {186, 45, "`lane_promote`", "", "middle"}, {186, 66, "it has the turn", "", "middle"},
		{64, 149, "`job_claim`", "", "middle"}, {116, 101, "failed: `job_fail`", "", ""}, {116, 119, "given back: `job_release`", "", ""}, {116, 137, "worker died: `job_sweep`", "", ""},
		{138, 171, "`job_fail`", "", ""}, {138, 191, "call in doubt", "", ""}, {138, 227, "`job_fail`", "", ""}, {138, 247, "attempts spent", "", ""}, {138, 283, "`job_cancel`", "", ""},
		{350, 157, "`step_settle`", "", "end"}, {350, 213, "`job_retry`", "", "end"}, {350, 269, "`job_retry`", "", "end"}, {72, 340, "with your rows: `job_finish`", "", ""}, {350, 317, "also from pending or waiting", "", "end"},
	},
	Omits: []Omission{
		{"pending", "dead_letter", "a delivery that no handler may see is stored as a dead letter"},
		{"pending", "cancelled", "the text below cancelled says it"}, {"waiting", "cancelled", "the text below cancelled says it"},
		{"dead_letter", "waiting", "job_retry after the job gave up its lane"}, {"cancelled", "waiting", "job_retry after the job gave up its lane"},
		{"pending", "", "job_discard"}, {"waiting", "", "job_discard, or lane_finish in a batch of its head"}, {"dead_letter", "", "job_discard"}, {"cancelled", "", "job_discard"},
	},
}

// Command shows the states of a command, in both of its forms.
var Command = Picture{
	Name: "command-states", Domain: "command_status", High: 290,
	Alt: "States of a command. command_open or command_claim makes it processing. command_close or command_succeed makes it succeeded, " +
		"with its answer. command_fail makes it failed_final, or failed_retryable until the next claim. It is unknown if it may have " +
		"taken effect: command_fail says so, or its lease is over. command_settle makes an unknown command succeeded or failed_retryable.",
	Boxes: []Box{
		{63, 6, 10, 10, "", "dot"}, {8, 48, 128, 56, "`processing`\nopen, or leased", "state"}, {256, 48, 96, 28, "`failed_final`", "bad"}, {256, 118, 96, 28, "`succeeded`", "good"},
		{8, 208, 128, 72, "`failed_retryable`\nmay run again", "state"}, {256, 208, 96, 72, "`unknown`", "bad"},
	},
	Lines: []Line{
		{"68,16 68,48", "", "", "processing", []string{"command_open", "command_claim"}},
		{"136,62 256,62", "bad", "processing", "failed_final", []string{"command_fail"}},
		{"136,84 150,84 150,132 256,132", "good", "processing", "succeeded", []string{"command_close", "command_succeed"}},
		{"136,94 142,94 142,222 256,222", "bad", "processing", "unknown", []string{"command_fail", "command_claim", "command_open"}},
		{"18,104 18,208", "", "processing", "failed_retryable", []string{"command_fail"}},
		{"126,208 126,104", "", "failed_retryable", "processing", []string{"command_claim", "command_open"}},
		{"304,208 304,146", "good", "unknown", "succeeded", []string{"command_settle", "command_succeed"}},
		{"256,266 136,266", "", "unknown", "failed_retryable", []string{"command_settle", "command_fail"}},
	},
	Texts: []Text{
		{78, 34, "`command_open` or `command_claim`", "", ""}, {196, 57, "`command_fail`", "", "middle"}, {196, 77, "for good", "", "middle"},
		{156, 127, "`command_close`", "", ""}, {156, 147, "its answer", "", ""}, {156, 217, "`command_fail`", "", ""}, {156, 237, "or lease over", "", ""},
		{72, 128, "`command_fail`", "", "middle"}, {72, 192, "`command_claim`", "", "middle"}, {298, 174, "executed:", "", "end"}, {298, 191, "`command_settle`", "", "end"},
		{196, 261, "`command_settle`", "", "middle"}, {196, 281, "not executed", "", "middle"},
	},
	Omits: []Omission{{"unknown", "failed_final", "a slow attempt reports its end late"}, {"unknown", "processing", "a slow attempt renews its lease"}},
}

// Step shows the states of a step.
var Step = Picture{
	Name: "step-states", Domain: "step_status", High: 288,
	Alt: "States of a step. step_begin plans it, then the call is made. step_end makes it succeeded if the call was executed, and " +
		"failed_final if the provider refused. If the outcome is in doubt and the recovery cannot tell, it is unknown. step_settle makes an " +
		"unknown step succeeded, failed_final, or planned again. step_again plans a refused step under a new key.",
	Boxes: []Box{
		{19, 6, 10, 10, "", "dot"}, {8, 108, 112, 60, "`planned`\nmay be called", "state"}, {248, 28, 104, 28, "`succeeded`", "good"},
		{248, 108, 104, 60, "`unknown`", "bad"}, {248, 220, 104, 56, "`failed_final`", "bad"},
	},
	Lines: []Line{
		{"24,16 24,108", "", "", "planned", []string{"step_begin"}},
		{"96,108 96,42 248,42", "good", "planned", "succeeded", []string{"step_end"}},
		{"120,124 248,124", "bad", "planned", "unknown", []string{"step_end", "step_begin"}},
		{"248,152 120,152", "", "unknown", "planned", []string{"step_settle", "step_end"}},
		{"300,108 300,56", "good", "unknown", "succeeded", []string{"step_settle", "step_end"}},
		{"300,168 300,220", "bad", "unknown", "failed_final", []string{"step_settle", "step_end"}},
		{"24,168 24,262 248,262", "bad", "planned", "failed_final", []string{"step_end"}},
		{"248,234 96,234 96,168", "", "failed_final", "planned", []string{"step_again"}},
	},
	Texts: []Text{
		{32, 24, "`step_begin`", "", ""}, {242, 37, "executed: `step_end`", "", "end"}, {184, 119, "in doubt: `step_end`", "", "middle"}, {184, 147, "`step_settle`", "", "middle"}, {184, 169, "not executed", "", "middle"},
		{294, 87, "executed: `step_settle`", "", "end"}, {294, 199, "refused: `step_settle`", "", "end"}, {104, 229, "new key: `step_again`", "", ""}, {104, 257, "refused: `step_end`", "", ""},
	},
}

// Lease shows a worker that stalls past its lease.
var Lease = Picture{
	Name: "lease-and-fence", High: 312,
	Alt: "Worker A claims a job with fence 7 and stalls. When its lease is over, a sweep makes the job pending again. Worker B claims it with " +
		"fence 8 and commits: one effect. When worker A wakes, its commit with fence 7 is refused with P4020, and its rows are rolled back.",
	Boxes: []Box{
		{8, 10, 88, 28, "worker A", "part"}, {128, 10, 88, 28, "the job", "part"}, {264, 10, 88, 28, "worker B", "part"},
		{40, 84, 24, 152, "", "stall"}, {140, 58, 64, 24, "fence 7", "pill"}, {140, 158, 64, 24, "fence 8", "pill"},
	},
	Lines: []Line{
		{Path: "52,38 52,84", Class: "plain"}, {Path: "52,236 52,304", Class: "plain"}, {Path: "172,38 172,58", Class: "plain"}, {Path: "172,82 172,158", Class: "plain"},
		{Path: "172,182 172,304", Class: "plain"}, {Path: "308,38 308,304", Class: "plain"},
		{Path: "52,70 140,70"}, {Path: "308,124 172,124"}, {Path: "308,170 204,170"}, {Path: "308,212 172,212", Class: "good"}, {Path: "52,264 172,264", Class: "bad"},
	},
	Texts: []Text{
		{94, 65, "claim", "", "middle"}, {72, 102, "stalls", "", ""}, {72, 232, "wakes", "", ""}, {240, 119, "lease over: sweep", "", "middle"}, {240, 141, "pending again", "", "middle"}, {256, 165, "claim", "", "middle"},
		{240, 207, "commit, fence 8", "good", "middle"}, {240, 229, "one effect", "good", "middle"}, {112, 259, "commit, fence 7", "bad", "middle"}, {180, 268, "refused: `P4020`", "bad", ""}, {180, 286, "A rolls back", "bad", ""},
	},
}

// Lane shows what waits behind a dead letter.
var Lane = Picture{
	Name: "lane-dead-letter", High: 322,
	Alt: "Three lanes. Under policy block, job 1 is a dead letter and keeps the turn, so jobs 2 and 3 wait until job_retry, job_discard or " +
		"lane_unblock. Under policy park or skip, job 1 is set aside, so job 2 is pending and job 3 waits behind it. Another lane goes on: its job " +
		"4 is processing and job 5 waits.",
	Boxes: []Box{
		{8, 32, 104, 46, "job 1\n`dead_letter`", "bad"}, {128, 32, 104, 46, "job 2\n`waiting`", "state"}, {248, 32, 104, 46, "job 3\n`waiting`", "state"},
		{8, 150, 104, 46, "job 1\n`dead_letter`", "bad aside"}, {128, 150, 104, 46, "job 2\n`pending`", "good"}, {248, 150, 104, 46, "job 3\n`waiting`", "state"},
		{8, 266, 104, 46, "job 4\n`processing`", "good"}, {128, 266, 104, 46, "job 5\n`waiting`", "state"},
	},
	Lines: []Line{{Path: "128,55 112,55"}, {Path: "248,55 232,55"}, {Path: "248,173 232,173"}, {Path: "128,289 112,289"}},
	Texts: []Text{
		{8, 22, "*`block`: the lane stands", "", ""}, {8, 98, "until `job_retry`, `job_discard`, `lane_unblock`", "faint", ""},
		{8, 140, "*`park`, `skip`: the lane goes on", "", ""}, {8, 216, "without job 1, which is set aside", "faint", ""},
		{8, 256, "*Other lanes go on in any case", "", ""},
	},
}

// Stored shows how a delivery whose handler fails is stored.
var Stored = Picture{
	Name: "stored-delivery", High: 392,
	Alt: "One transaction stores a failed delivery: it claims the message with an inbox row and runs your handler behind a savepoint. The " +
		"handler fails, and its rows roll back to the savepoint. Then a job with the payload is stored and the transaction commits. Only now the " +
		"message is acknowledged to the broker. A worker runs the handler again later, with back-off, until it succeeds or is a dead letter.",
	Boxes: []Box{
		{92, 8, 260, 282, "", "group"}, {8, 38, 66, 42, "broker", "part"}, {112, 38, 220, 42, "claim\ninbox row", "part"}, {112, 100, 220, 42, "handler\nyour rows, behind a savepoint", "bad"},
		{112, 178, 220, 42, "store\na job with the payload", "good"}, {112, 240, 220, 42, "commit\ninbox row and job", "good"}, {112, 316, 220, 42, "worker\nhandler again, or dead letter", "part"},
	},
	Lines: []Line{
		{Path: "74,59 112,59"}, {Path: "222,80 222,100"}, {Path: "222,142 222,178", Class: "bad"}, {Path: "222,220 222,240"}, {Path: "112,261 41,261 41,80", Class: "good"}, {Path: "222,282 222,316"},
	},
	Texts: []Text{
		{112, 28, "one transaction", "faint", ""}, {230, 164, "fails: rolls back", "bad", ""}, {49, 170, "ack", "good", ""}, {230, 308, "with back-off", "", ""},
	},
}

// Crash shows what a crash costs at each step of a delivery.
var Crash = Picture{
	Name: "crash-costs", High: 330,
	Alt: "The steps of a delivery: receive a batch, claim it with an inbox row, handle it with your rows, commit both, acknowledge with a " +
		"receipt. Claim, handle and commit are one transaction. A crash before the commit costs a redelivery: nothing was visible. A crash " +
		"after the commit and before the acknowledgement costs one absorbed duplicate. A crash later costs nothing.",
	Boxes: []Box{
		{8, 70, 144, 176, "", "group"}, {18, 10, 124, 42, "receive\na batch", "part"}, {18, 80, 124, 42, "claim\ninbox row", "part"}, {18, 138, 124, 42, "handle\nyour rows", "part"},
		{18, 196, 124, 42, "commit\nboth or neither", "good"}, {18, 276, 124, 42, "ack\nwith a receipt", "part"},
	},
	Lines: []Line{
		{Path: "34,52 34,80"}, {Path: "34,122 34,138"}, {Path: "34,180 34,196"}, {Path: "34,238 34,276"},
		{Path: "162,14 172,14 172,206 162,206", Class: "bad plain"}, {Path: "162,228 172,228 172,290 162,290", Class: "good plain"}, {Path: "162,302 172,302 172,318 162,318", Class: "plain"},
	},
	Texts: []Text{
		{44, 66, "one transaction", "faint", ""}, {182, 92, "*a crash here costs", "", ""}, {182, 110, "*one redelivery:", "bad", ""}, {182, 128, "nothing was visible", "", ""}, {182, 254, "*one duplicate,", "good", ""}, {182, 272, "which is absorbed", "", ""}, {182, 315, "*nothing", "", ""},
	},
}

// Failover shows the failover to a synchronous standby.
var Failover = Picture{
	Name: "standby-failover", High: 372,
	Alt: "A consumer sends COMMIT to the primary. The primary sends its WAL to the synchronous standby, waits until it is flushed there, and " +
		"then answers. Only now the consumer acknowledges the message. The primary is lost and the standby is promoted. " +
		"If the same key comes again, the promoted server answers duplicate: the row is there.",
	Boxes: []Box{
		{8, 10, 88, 28, "consumer", "part"}, {136, 10, 88, 28, "primary", "part"}, {264, 10, 88, 28, "standby", "part"}, {144, 198, 72, 26, "lost", "bad"}, {264, 232, 88, 28, "promoted", "good"},
	},
	Lines: []Line{
		{Path: "52,38 52,362", Class: "plain"}, {Path: "180,38 180,198", Class: "plain"}, {Path: "308,38 308,232", Class: "plain"}, {Path: "308,260 308,362", Class: "plain"},
		{Path: "52,70 180,70"}, {Path: "180,96 308,96"}, {Path: "308,122 180,122"}, {Path: "180,148 52,148", Class: "good"}, {Path: "52,292 308,292"}, {Path: "308,330 52,330", Class: "good"},
	},
	Texts: []Text{
		{116, 65, "COMMIT", "", "middle"}, {244, 91, "WAL", "", "middle"}, {244, 117, "flushed", "", "middle"}, {116, 143, "committed", "good", "middle"}, {60, 168, "acknowledge", "good", ""},
		{180, 287, "the same key again", "", "middle"}, {180, 325, "duplicate: the row is there", "good", "middle"},
	},
}

// Overview shows the parts of Pawl.
var Overview = Picture{
	Name: "overview", High: 394,
	Alt: "Messages from brokers and webhooks go through consumer, requests with a key through command. Both commit your tables together with " +
		"a row of inbox or command, which says whether it happened. Your own code and a clock make jobs. The rows of job and worker say whose turn it " +
		"is. A worker claims a job and commits your tables with its end. From there, outbox publishes events and step calls other systems.",
	Boxes: []Box{
		{8, 10, 104, 42, "messages\nor webhooks", "part"}, {128, 10, 104, 42, "requests\nwith a key", "part"}, {248, 10, 104, 42, "your code\nor a clock", "part"},
		{8, 76, 104, 28, "`consumer`", "state"}, {128, 76, 104, 28, "`command`", "state"}, {248, 76, 104, 28, "`job`", "state"},
		{2, 132, 356, 128, "", "group"}, {12, 160, 216, 42, "`inbox`, `command`\ndid it happen?", "good"}, {12, 208, 216, 42, "your tables\nthe effect", "good"}, {248, 160, 100, 90, "`job`, `worker`\nwhose turn?", "good"},
		{128, 292, 220, 28, "`job.Worker`: your handler", "state"}, {8, 344, 340, 42, "out\n`outbox`: events, `step`: other systems", "part"},
	},
	Lines: []Line{
		{Path: "60,52 60,76"}, {Path: "180,52 180,76"}, {Path: "300,52 300,76"}, {Path: "60,104 60,160"}, {Path: "180,104 180,160"}, {Path: "300,104 300,160"},
		{Path: "300,250 300,292"}, {Path: "180,292 180,250"}, {Path: "240,320 240,344"},
	},
	Texts: []Text{{66, 124, "one transaction", "", ""}, {68, 150, "PostgreSQL", "faint", ""}, {174, 280, "one transaction", "", "end"}, {306, 280, "claim", "", ""}},
}

// Service shows the parts of the example service.
var Service = Picture{
	Name: "service", High: 372,
	Alt: "POST /orders with an Idempotency-Key and messages of SQS go to place, which writes order, job and event in one transaction. The job " +
		"charge makes one call of the payment provider as a step. Then settle writes payment, event and the end of the job in one transaction. A webhook of the " +
		"provider leads to refunded, which writes refund and event in one transaction. The relay publishes all events to SQS.",
	Boxes: []Box{
		{8, 10, 164, 42, "POST /orders\nIdempotency-Key", "part"}, {188, 10, 164, 42, "SQS\norders", "part"}, {8, 84, 344, 42, "place\norder, job, event: one transaction", "good"},
		{8, 158, 130, 42, "job\ncharge", "state"}, {222, 158, 130, 42, "provider\npayments", "part"}, {8, 232, 164, 58, "settle\npayment, event,\nend of the job", "good"}, {188, 232, 164, 58, "refunded\nrefund, event", "good"},
		{8, 322, 344, 42, "relay\nevents of all three, to SQS", "part"},
	},
	Lines: []Line{
		{Path: "90,52 90,84"}, {Path: "270,52 270,84"}, {Path: "73,126 73,158"}, {Path: "138,179 222,179"}, {Path: "73,200 73,232"}, {Path: "287,200 287,232"}, {Path: "90,290 90,322"}, {Path: "270,290 270,322"},
	},
	Texts: []Text{{180, 174, "one call", "", "middle"}, {180, 194, "`step`", "", "middle"}, {293, 221, "webhook", "", ""}},
}

// Filter shows how a filter saves the claim of a duplicate.
var Filter = Picture{
	Name: "filter", High: 424,
	Alt: "A new delivery: the consumer finds no mark in Redis, reads the epoch and claims in PostgreSQL, commits your rows, stores the mark in Redis and " +
		"acknowledges. The same delivery again: the consumer finds the mark, and PostgreSQL still has the epoch of the mark. So the consumer " +
		"acknowledges without a claim.",
	Boxes: []Box{
		{8, 10, 100, 28, "PostgreSQL", "part"}, {132, 10, 96, 28, "consumer", "part"}, {264, 10, 88, 28, "Redis", "part"},
		{122, 54, 116, 24, "new delivery", "pill"}, {122, 216, 116, 24, "acknowledge", "pill good"}, {122, 258, 116, 24, "the same again", "pill"}, {122, 392, 116, 24, "acknowledge", "pill good"},
	},
	Lines: []Line{
		{Path: "58,38 58,418", Class: "plain"}, {Path: "180,38 180,54", Class: "plain"}, {Path: "180,78 180,216", Class: "plain"}, {Path: "180,240 180,258", Class: "plain"}, {Path: "180,282 180,392", Class: "plain"}, {Path: "308,38 308,418", Class: "plain"},
		{Path: "180,104 308,104"}, {Path: "308,128 180,128"}, {Path: "180,152 58,152"}, {Path: "180,196 308,196"}, {Path: "180,308 308,308"}, {Path: "308,332 180,332", Class: "good"}, {Path: "180,356 58,356"}, {Path: "58,380 180,380", Class: "good"},
	},
	Texts: []Text{
		{244, 99, "is there a mark?", "", "middle"}, {244, 123, "no", "", "middle"}, {119, 147, "epoch, claim,", "", "middle"}, {119, 170, "rows, COMMIT", "", "middle"}, {244, 191, "store the mark", "", "middle"},
		{244, 303, "is there a mark?", "", "middle"}, {244, 327, "yes", "good", "middle"}, {119, 351, "the epoch?", "", "middle"}, {119, 375, "unchanged", "good", "middle"},
	},
}

// Webhook shows who answers a request of a webhook's sender.
var Webhook = Picture{
	Name: "webhook", High: 236,
	Alt: "A sender posts a request. The verifier answers 4xx if it is not signed, complete and recent. The receiver hands it to the consumer, " +
		"which claims it, runs your handler and commits. Then the receiver answers 200, or 503 if it could not be handled now. A reconciler brings " +
		"the receiver requests that were sent but are not remembered here.",
	Boxes: []Box{
		{8, 10, 80, 56, "sender", "part"}, {152, 10, 200, 56, "verifier\nsigned, complete, recent?", "state"}, {152, 98, 200, 42, "receiver\nhands over and answers", "state"},
		{152, 184, 200, 42, "consumer\nclaim, handler, commit", "good"}, {8, 184, 124, 42, "reconciler\nwhat is missing", "part"},
	},
	Lines: []Line{
		{Path: "88,24 152,24"}, {Path: "152,54 88,54", Class: "bad"}, {Path: "252,66 252,98"}, {Path: "230,140 230,184"}, {Path: "280,184 280,140", Class: "good"}, {Path: "152,110 48,110 48,66", Class: "good"}, {Path: "98,184 98,130 152,130"},
	},
	Texts: []Text{{120, 19, "POST", "", "middle"}, {120, 49, "4xx", "bad", "middle"}, {56, 104, "200 or 503", "good", ""}, {288, 167, "receipt", "good", ""}},
}
