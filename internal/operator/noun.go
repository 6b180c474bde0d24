package operator

import (
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/ops"
)

// A Noun is a kind of thing that verbs act on.
type Noun struct {
	Name    string  // page name in the dashboard
	Group   string  // command group
	Fields  []Field // fields that identify one thing
	What    string  // phrase for one thing, filled by [Line]
	Look    string  // arguments of pawl that show it
	Locked  string  // message if an open transaction has locked it
	More    string  // help text of all of its verbs
	Done    string  // line about a change; empty: the phrase in What, then the outcome
	Already string  // line if nothing had to change; default: Done
}

// The nouns.
var (
	Jobs = &Noun{Name: "job", Group: "jobs", What: "job $id", Look: "jobs show $id", Locked: "the job is locked by an open transaction, most likely of its attempt",
		Fields: []Field{{Name: "id", Arg: "ID", Type: ID}}}
	Queues = &Noun{Name: "queue", Group: "queues", What: "queue $name", Look: "queues list", Locked: "the queue is being set in another open transaction",
		Fields: []Field{{Name: "name", Arg: "QUEUE"}}, Done: "queue $name $now (was $was)", Already: "queue $name $now already",
		More: "It applies from now on, in every process. The queue may be one that never had a job: see pawl queues --help."}
	Lanes = &Noun{Name: "lane", Group: "lanes", What: "lane $name of queue $queue", Look: "lanes list --queue $queue",
		Locked: "the lane is locked by an open transaction, most likely one that enqueues into it",
		Fields: []Field{{Name: "queue", Arg: "QUEUE"}, {Name: "name", Arg: "LANE"}}}
	Schedules = &Noun{Name: "schedule", Group: "schedules", What: "schedule $name", Look: "schedules list", Locked: "the schedule is locked by an open transaction",
		Fields: []Field{{Name: "name", Arg: "NAME"}}}
	Deliveries = &Noun{Name: "delivery", Group: "inbox", What: "delivery $key of consumer $consumer", Look: "inbox show $consumer $key",
		Locked: "the delivery is locked by an open transaction, most likely of its handler",
		Fields: []Field{{Name: "consumer", Arg: "CONSUMER"}, {Name: "key", Arg: "ID"}}}
	SequenceGates = &Noun{Name: "gate", Group: "sequence-gates", What: "sequence gate $resource of consumer $consumer", Look: "sequence-gates list --consumer $consumer",
		Locked: "the gate is locked by an open transaction, most likely of a handler",
		Fields: []Field{{Name: "consumer", Arg: "CONSUMER"}, {Name: "resource", Arg: "RESOURCE"}}, Done: "gate $resource $outcome: it stands at $now (was $was)"}
	Commands = &Noun{Name: "command", Group: "commands", What: "command $key of scope $scope", Look: "commands show $scope $key",
		Locked: "the command is locked by an open transaction, most likely of its attempt",
		Fields: []Field{{Name: "scope", Arg: "SCOPE"}, {Name: "key", Arg: "KEY"}}}
	Steps = &Noun{Name: "step", Group: "steps", What: "step $step of $key in $scope", Look: "steps show $scope $key $step",
		Locked: "the step is locked by an open transaction, most likely of its attempt",
		Fields: []Field{{Name: "scope", Arg: "SCOPE"}, {Name: "key", Arg: "KEY"}, {Name: "step", Arg: "STEP"}}}
)

// Verbs returns the noun's verbs.
func (n *Noun) Verbs() (all []Verb) {
	for _, v := range table {
		if v.Noun == n {
			all = append(all, v)
		}
	}
	return all
}

// NameOf returns the phrase for one thing.
func (n *Noun) NameOf(p Values) string { return os.Expand(n.What, p) }

// A Row is one thing as it was read: the values of its verbs' fields, and those that decide which
// verbs fit.
type Row struct {
	Noun   *Noun
	values map[string]string
}

// Value returns the value of a field.
func (r Row) Value(name string) string { return r.values[name] }

// Verbs returns the verbs that the thing allows in its current state.
func (r Row) Verbs() (all []Verb) {
	for _, v := range r.Noun.Verbs() {
		if v.Fits == nil || v.Fits(r.Value) {
			all = append(all, v)
		}
	}
	return all
}

func id(n int64) string { return strconv.FormatInt(n, 10) }

// Job returns a job as a row.
func Job(j ops.Job) Row {
	return Row{Jobs, map[string]string{"id": id(j.ID), "fence": id(j.Fence), "status": string(j.Status)}}
}

// Lane returns a lane as a row.
func Lane(l ops.Lane) Row {
	r := Row{Lanes, map[string]string{"queue": l.Queue, "name": l.Name}}
	if l.Blocked() {
		r.values["head"] = id(l.Head)
	}
	return r
}

// Queue returns a queue as a row.
func Queue(q ops.Queue) Row {
	return Row{Queues, map[string]string{"name": q.Name, "mode": q.Mode, "archive": strconv.FormatBool(q.Archive)}}
}

// Schedule returns a schedule as a row.
func Schedule(s ops.Schedule) Row {
	return Row{Schedules, map[string]string{"name": s.Name, "paused": strconv.FormatBool(s.Paused), "record": id(lastRecord(s.Changes))}}
}

// Delivery returns a delivery as a row. A zero ReceivedAt means that the delivery was not found.
func Delivery(d ops.Delivery) Row {
	r := Row{Deliveries, map[string]string{"consumer": d.Consumer, "key": d.Key, "processed_at": "none", "read": strconv.FormatBool(!d.ReceivedAt.IsZero())}}
	if !d.ProcessedAt.IsZero() {
		r.values["processed_at"] = d.ProcessedAt.Format(time.RFC3339Nano)
	}
	return r
}

// Command returns a command as a row.
func Command(c ops.Command) Row {
	return Row{Commands, map[string]string{"scope": c.Scope, "key": c.Key, "fence": id(c.Fence), "status": string(c.Status)}}
}

// Step returns a step as a row.
func Step(s ops.Step) Row {
	return Row{Steps, map[string]string{"scope": s.Scope, "key": s.Key, "step": s.Step, "fence": id(s.Fence), "status": string(s.Status)}}
}

// SequenceGate returns a sequence gate as a row.
func SequenceGate(g ops.SequenceGate) Row {
	r := Row{SequenceGates, map[string]string{"consumer": g.Consumer, "resource": g.Resource, "last": "none"}}
	if g.Last != nil {
		r.values["last"] = id(*g.Last)
	}
	if g.NextHeld != nil {
		r.values["next_held"] = id(*g.NextHeld)
	}
	return r
}

// is reports whether a row's value is one of these.
func is[T ~string](name string, these ...T) func(Values) bool {
	return func(row Values) bool { return slices.Contains(these, T(row(name))) }
}

func not(fits func(Values) bool) func(Values) bool {
	return func(row Values) bool { return !fits(row) }
}
