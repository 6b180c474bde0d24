package guard

import (
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/watched"
)

// statements are the SQL texts for one table. $1 is the row's id. Names are quoted. States are
// literals, which allows enums and partial indexes on the status.
type statements struct {
	complete string // pending → completed; returns the id
	result   string // $2: the result of the work; "" if the table has no column for it
	fail     string // $2: the error; for a row that this transaction has completed
	failLate string // $2: the error; for a pending row, after the transaction was lost
	look     string // the status, and whether synchronous standbys are set
	claim    string // pending → processing; returns the token, the id and the table's full name
	hold     string // locks the row if it is processing under token $2
	settle   string // processing under token $2 → completed
	refuse   string // processing under token $2 → error $3
	ended    string // whether synchronous standbys are set; for a row that token $2 has ended
}

// templates name columns and states by their fields. fill drops a line that names a missing column.
var templates = statements{
	complete: `update {Name}
   set {Status} = {Completed}
     , {CompletedAt} = {now}
     , {ClaimedAt} = {now}
     , {AttemptCount} = {AttemptCount} + 1
 where {ID} = $1 and {Status} = {Pending}
returning {ID}::text`,

	result: `update {Name}
   set {Result} = $2
 where {ID} = $1`,

	fail: `update {Name}
   set {Status} = {Error}
     , {CompletedAt} = null
     , {ClaimedAt} = {now}
     , {LastError} = $2
 where {ID} = $1 and {Status} = {Completed}`,

	failLate: `update {Name}
   set {Status} = {Error}
     , {ClaimedAt} = {now}
     , {AttemptCount} = {AttemptCount} + 1
     , {LastError} = $2
 where {ID} = $1 and {Status} = {Pending}
returning ` + watched.ReadOn,

	look: `select {Status}::text, ` + watched.ReadOn + `
  from {Name}
 where {ID} = $1`,

	claim: `update {Name}
   set {Status} = {Processing}
     , {ClaimedAt} = {now}
     , {AttemptCount} = {AttemptCount} + 1
 where {ID} = $1 and {Status} = {Pending}
returning {ClaimedAt}, {ID}::text, (
         select pg_catalog.format('%I.%I', n.nspname, c.relname)
           from pg_catalog.pg_class as c
           join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
          where c.oid = {relation}::pg_catalog.regclass)`,

	// It permits rows of other tables that refer to this one.
	hold: `select true
  from {Name}
 where {ID} = $1 and {Status} = {Processing}
   and {ClaimedAt} = $2
   for no key update`,

	settle: `update {Name}
   set {Status} = {Completed}
     , {CompletedAt} = {now}
 where {ID} = $1 and {Status} = {Processing}
   and {ClaimedAt} = $2`,

	refuse: `update {Name}
   set {Status} = {Error}
     , {LastError} = $3
 where {ID} = $1 and {Status} = {Processing}
   and {ClaimedAt} = $2
returning ` + watched.ReadOn,

	ended: `select ` + watched.ReadOn + `
  from {Name}
 where {ID} = $1
   and {ClaimedAt} = $2
   and ({Status} = {Completed}
     or {Status} = {Error}
    and {LastError}::text is distinct from ` + silentText + `
       )`,
}

func (t Table) statements() statements {
	s := statements{complete: t.fill(templates.complete), fail: t.fill(templates.fail), failLate: t.fill(templates.failLate),
		look: t.fill(templates.look), claim: t.fill(templates.claim), hold: t.fill(templates.hold), settle: t.fill(templates.settle), refuse: t.fill(templates.refuse), ended: t.fill(templates.ended)}
	if t.Result != None {
		s.result = t.fill(templates.result)
	}
	return s
}

// columns returns the column names by field, None if the table lacks the column.
func (t Table) columns() map[string]string {
	return map[string]string{"{ID}": t.ID, "{Status}": t.Status, "{Result}": t.Result, "{CompletedAt}": t.CompletedAt, "{ClaimedAt}": t.ClaimedAt,
		"{LastError}": t.LastError, "{AttemptCount}": t.AttemptCount, "{CreatedAt}": t.CreatedAt, "{Monotone}": t.Monotone}
}

var field = regexp.MustCompile(`\{\w+\}`)

// fill makes a statement, or part of one, from its template. more are pairs as for a Replacer.
func (t Table) fill(template string, more ...string) string {
	columns := t.columns()
	var lines []string
	for line := range strings.Lines(template) {
		if !t.lacks(columns, line) {
			lines = append(lines, line)
		}
	}
	name := pgx.Identifier(strings.Split(t.Name, ".")).Sanitize()
	pairs := append([]string{"{Name}", name, "{relation}", literal(name), "{now}", "pg_catalog.clock_timestamp()",
		"{Pending}", literal(t.Pending), "{Processing}", literal(t.Processing), "{Completed}", literal(t.Completed), "{Error}", literal(t.Error)}, more...)
	for name, column := range columns {
		pairs = append(pairs, name, pgx.Identifier{column}.Sanitize())
	}
	return strings.TrimSpace(strings.NewReplacer(pairs...).Replace(strings.Join(lines, "")))
}

func (t Table) lacks(columns map[string]string, line string) bool {
	for _, name := range field.FindAllString(line, -1) {
		if columns[name] == None {
			return true
		}
	}
	return false
}

func literal(state string) string {
	return "'" + strings.ReplaceAll(state, "'", "''") + "'"
}
