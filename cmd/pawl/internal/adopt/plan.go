package adopt

import (
	"fmt"
	"time"
)

// A Step is one step of the plan.
type Step struct {
	Name  string `json:"name"`
	Does  string `json:"does"`
	SQL   string `json:"sql,omitempty"`
	Locks string `json:"locks"`
	Takes string `json:"takes"`
	Back  string `json:"back"`
}

// rate is how many rows a second a backfill copied on two busy cores. Once it was 200.
const rate = 2000

// Plan is the checklist of an adoption.
func (t *Table) Plan() []Step {
	const moment = "a moment"
	none := "nothing: the table is only read"
	steps := []Step{{
		Name:  "shadow",
		Does:  "The old consumer asks Pawl too, in the same transaction, and only differences are recorded. Deploy it with one new line: " + t.Call(),
		SQL:   string(t.Shadow()),
		Locks: "nothing of yours: it makes two functions and a table. The new line waits for a key at most 50 ms",
		Takes: moment + ", and then some days of watching",
		Back:  "remove the line. The rows in the inbox are true and may stay",
	}}
	if t.Payload != nil {
		steps = append(steps, Step{
			Name:  "backfill",
			Does:  fmt.Sprintf("Pawl learns which messages took effect in the last %d days: 1000 rows a transaction, beside running consumers.", t.Days),
			SQL:   string(t.Backfill()) + "\n" + t.Next() + " -- then with what last says, until it is null\n",
			Locks: none + ", and a batch holds its keys of the inbox until it commits",
			Takes: fmt.Sprintf("about %s at %d rows a second; on two busy cores, 200 to 2000 were measured", t.estimate(), rate),
			Back:  "nothing to take back",
		})
	}
	return append(steps, Step{
		Name:  "switch",
		Does:  "It checks that no difference needs an answer, and changes nothing. Then deploy a consumer whose handler still asks the table, and works only if this adds a row: " + t.Insert(),
		SQL:   string(t.Differences()),
		Locks: none,
		Takes: moment + ", and your deploy",
		Back:  "deploy the old build, and keep one process of the new one until its stored deliveries are done",
	}, Step{
		Name:  "remove",
		Does:  "It checks that Pawl knows all rows, as far back as a message may come from, and drops what the shadow needed. Deploy the handler without the insert. It never drops your table.",
		SQL:   string(t.Left()) + "\n" + string(t.Drop()),
		Locks: none + ". The old build must not run any more, since it calls what is dropped",
		Takes: "one read of the table",
		Back:  "stop the processes of this step, run --step back, then deploy the build before it",
	}, Step{
		Name:  "back",
		Does:  "It copies keys from the inbox into the table, 1000 a transaction. It is needed only after remove.",
		SQL:   string(t.Back()) + "\n" + t.NextBack() + " -- then with what last says, until it is null\n",
		Locks: "the rows that it adds",
		Takes: "as the backfill",
		Back:  "switch again",
	})
}

func (t *Table) estimate() time.Duration {
	rows := t.Rows.About
	if !t.Rows.More {
		rows = t.Rows.Recent
	}
	return max(time.Second, time.Duration(float64(rows)/rate*float64(time.Second)).Round(time.Second))
}
