package adopt

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/internal/text"
)

// names are the objects that an adoption makes beside the table, quoted.
type names struct {
	base                                             string
	fingerprint, shadow, differences, backfill, back string
	consumer                                         string // as a literal
}

// nameRoom is how many octets of a consumer's name fit into the names, which have at most 63.
const nameRoom = 45

func namesOf(consumer string) names {
	if len(consumer) > nameRoom {
		sum := sha256.Sum256([]byte(consumer))
		consumer = fmt.Sprintf("%s_%x", text.Octets(consumer, nameRoom-9), sum[:4])
	}
	return names{base: "adopt_" + consumer}
}

// A Script is SQL with its names filled in. Each statement ends with a semicolon.
type Script string

// fill replaces the names of a template, once: a name may contain what looks like another one.
func (t *Table) fill(template string) string {
	key := "p." + t.Key.Quoted
	return strings.NewReplacer(
		"$table", t.Name, "$fingerprint", t.names.fingerprint, "$shadow", t.names.shadow, "$differences", t.names.differences,
		"$backfill", t.names.backfill, "$back", t.names.back, "$consumer", t.names.consumer,
		"$column", t.Key.Quoted, "$key", key, "$text", t.keyText(), "$type", t.keyType(), "$payload", t.payload(),
		"$and", t.and(), "$deeper", strings.ReplaceAll(t.and(), "\n", "\n    "),
		"$into", t.into(), "$values", t.values(), "$readable", t.readable(),
	).Replace(template)
}

// function makes a function of a body that it puts in dollar quotes that do not occur in it.
func (t *Table) function(head, body string) string {
	quote, body := "$$", t.fill(body)
	for n := 1; strings.Contains(body, quote); n++ {
		quote = fmt.Sprintf("$adopt%d$", n)
	}
	return t.fill(head) + "as " + quote + body + quote + ";\n"
}

func (t *Table) keyType() string {
	if t.Key.Base == "character varying" {
		return "text"
	}
	return t.Key.Base
}

// keyText is the key as Pawl has it. A collation of the column would conflict with the inbox's.
func (t *Table) keyText() string {
	key := "p." + t.Key.Quoted
	if t.Key.Type != "text" {
		key += "::text"
	}
	if t.Key.Collated {
		key += ` collate "C"`
	}
	return key
}

// payload is the octets of the message.
func (t *Table) payload() string {
	switch {
	case t.Payload == nil:
		return "convert_to(" + t.keyText() + ", 'UTF8')" // only in a rehearsal
	case t.Payload.Base == "bytea":
		return "p." + t.Payload.Quoted
	case t.Payload.Base == "json":
		return "convert_to(p." + t.Payload.Quoted + "::text, 'UTF8')"
	}
	return "convert_to(p." + t.Payload.Quoted + ", 'UTF8')"
}

func (t *Table) cutOff() string {
	return fmt.Sprintf("clock_timestamp() - interval '%d days'", t.window())
}

// window is how many days of rows matter. A time without a zone may be up to a day off.
func (t *Table) window() int {
	if t.Time != nil && t.Time.Base == "timestamp without time zone" {
		return t.Days + 1
	}
	return t.Days
}

func (t *Table) isRecent() string {
	is := "p." + t.Time.Quoted + " > " + t.cutOff()
	if !t.Time.NotNull {
		is = "(p." + t.Time.Quoted + " is null or " + is + ")"
	}
	return is
}

func (t *Table) ofScope() string { return "p." + t.Scope.Quoted + " = " + t.quotedScope }

// and is the condition on rows that Pawl must know.
func (t *Table) and() string {
	var all strings.Builder
	if t.Scope != nil {
		all.WriteString("\n   and " + t.ofScope())
	}
	if t.Time != nil {
		all.WriteString("\n   and " + t.isRecent())
	}
	return all.String()
}

// Shadow makes the functions and the table of step 1.
func (t *Table) Shadow() Script {
	var all strings.Builder
	all.WriteString(t.function(`create or replace function $fingerprint(p_body bytea)
returns bytea
language sql
immutable
set search_path = pg_catalog, pg_temp
`, `
  select sha256(int8send(octet_length(p_body)) || p_body)
`))
	all.WriteString(t.fill(`
create table if not exists $differences (
  at         timestamptz not null default clock_timestamp(),
  message_id text not null,
  key        text,
  old        text not null,
  pawl       text not null
);

`))
	all.WriteString(t.function(`create or replace function $shadow(p_id text, p_key text, p_body bytea, p_old text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
`, `
declare
  v_said text;
begin
  -- Each inner block is a savepoint: an error in it is undone, and the effect stays.
  begin
    select c.outcome
      into v_said
      from pawl_v1.inbox_claim_many($consumer, array[p_key], array[$fingerprint(p_body)]) as c;
  exception
    when others then
      v_said := sqlstate;
  end;
  if v_said not in (p_old, 'in_progress') then
    begin
      insert into $differences (message_id, key, old, pawl)
      values (p_id, p_key, p_old, v_said);
    exception
      when others then
        raise warning 'a difference cannot be recorded: %', sqlerrm;
    end;
  end if;
end
`))
	if len(t.writers) > 0 {
		all.WriteString("\ngrant insert, select on " + t.names.differences + " to " + strings.Join(t.writers, ", ") + ";\n")
	}
	return Script(all.String())
}

// Call is the line that the old consumer gets: message id, key, octets, and what the table said.
func (t *Table) Call() string { return t.fill("select $shadow($1, $2, $3, $4)") }

// Differences shows what the shadow recorded.
func (t *Table) Differences() Script {
	return Script(t.fill(`select s.old, s.pawl, count(*), min(s.key) as example
  from $differences as s
 group by s.old, s.pawl;
`))
}

// Backfill makes the function of step 2, which copies up to 1000 rows behind a key.
func (t *Table) Backfill() Script {
	return Script(t.function(`create or replace function $backfill(p_after $type)
returns table (last text, copied bigint, known bigint, differ bigint, busy bigint)
language sql
set search_path = pg_catalog, pg_temp
`, `
  with page as (
    select $key as id, $text as key, $fingerprint($payload) as hash
      from $table as p
     where $key > p_after
       and octet_length($text) between 1 and 255
       and $payload is not null$deeper
     order by $key
     limit 1000
  ), batch as (
    select array_agg(g.key order by g.id) as keys, array_agg(g.hash order by g.id) as hashes
      from page as g
  )
  select max(b.keys[cardinality(b.keys)]), count(*) filter (where c.outcome = 'processed'), count(*) filter (where c.outcome = 'duplicate_ignored'),
         count(*) filter (where c.outcome = 'mismatch'), count(*) filter (where c.outcome = 'in_progress')
    from batch as b
   cross join lateral pawl_v1.inbox_claim_many($consumer, b.keys, b.hashes) as c
   where b.keys is not null
`))
}

// Next is a call of that function.
func (t *Table) Next() string {
	return t.fill("select b.last, b.copied, b.known, b.differ, b.busy from $backfill('") + keyTypes[t.Key.Base].least + "') as b;"
}

// Left counts rows that Pawl must know and does not.
func (t *Table) Left() Script {
	return Script(t.fill(`select count(*)
  from $table as p
 where octet_length($text) between 1 and 255$and
   and not exists (select from pawl.inbox as i where i.consumer = $consumer and i.key = $text);
`))
}

// Untimed counts rows that Pawl does not know and that have no time.
func (t *Table) Untimed() Script {
	return Script(strings.TrimSuffix(string(t.Left()), ";\n") + "\n   and p." + t.Time.Quoted + " is null;\n")
}

// SetTime gives the rows without a time one, so that they become old.
func (t *Table) SetTime() string {
	set := "update " + t.Name + " as p set " + t.Time.Quoted + " = clock_timestamp() where p." + t.Time.Quoted + " is null"
	if t.Scope != nil {
		set += " and " + t.ofScope()
	}
	return set
}

// Insert is the first statement of the handler in step 3. Its parameters are in the order of its
// columns. A time without a default is set, because a row without a time counts as recent for ever.
func (t *Table) Insert() string {
	var columns, values []string
	parameters := 0
	for _, c := range t.inserted() {
		value := "clock_timestamp()"
		if t.Time == nil || c.Name != t.Time.Name {
			parameters++
			value = fmt.Sprintf("$%d", parameters)
		}
		columns, values = append(columns, c.Quoted), append(values, value)
	}
	return "insert into " + t.Name + " (" + strings.Join(columns, ", ") + ") values (" + strings.Join(values, ", ") + ") on conflict do nothing"
}

// inserted are the columns that a handler fills.
func (t *Table) inserted() (all []Column) {
	all = []Column{t.Key}
	for _, c := range []*Column{t.Scope, t.Payload} {
		if c != nil {
			all = append(all, *c)
		}
	}
	if t.Time != nil && !t.Time.Default {
		all = append(all, *t.Time)
	}
	return append(all, t.Required...)
}

// Stored counts deliveries that the consumer stored and has not finished.
func (t *Table) Stored() Script {
	return Script(t.fill("select count(*) from pawl_v1.jobs as j where j.queue = 'inbox/' || $consumer and j.status <> 'dead_letter';\n"))
}

// Back makes the function of the way back, which copies up to 1000 keys of the inbox behind a key.
func (t *Table) Back() Script {
	return Script(t.function(`create or replace function $back(p_after text)
returns table (last text, copied bigint)
language sql
set search_path = pg_catalog, pg_temp
`, `
  with page as (
    select i.key, i.processed_at
      from pawl.inbox as i
     where i.consumer = $consumer
       and i.key > p_after
       and i.processed_at is not null
     order by i.key
     limit 1000
  ), put as (
    insert into $table ($into)
    select $values
      from page as g$readable
    on conflict do nothing
    returning 1
  )
  select max(g.key), (select count(*) from put)
    from page as g
`))
}

// into and values are the columns that the way back fills.
func (t *Table) into() string {
	columns := []string{t.Key.Quoted}
	for _, c := range []*Column{t.Scope, t.Time} {
		if c != nil {
			columns = append(columns, c.Quoted)
		}
	}
	return strings.Join(columns, ", ")
}

func (t *Table) values() string {
	values := []string{"g.key"}
	if t.keyType() != "text" {
		values[0] += "::" + t.keyType()
	}
	if t.Scope != nil {
		values = append(values, t.quotedScope)
	}
	if t.Time != nil {
		values = append(values, "g.processed_at")
	}
	return strings.Join(values, ", ")
}

// readable leaves out keys that are no value of the key's type.
func (t *Table) readable() string {
	if is := keyTypes[t.Key.Base].readable; is != "" {
		return "\n     where " + strings.ReplaceAll(is, "$key", "g.key")
	}
	return ""
}

// NextBack is a call of that function.
func (t *Table) NextBack() string { return t.fill("select b.last, b.copied from $back('') as b;") }

// Drop removes what the adoption made, but not the table.
func (t *Table) Drop() Script {
	return Script(t.fill(`drop function if exists $shadow(text, text, bytea, text), $backfill($type), $back(text), $fingerprint(bytea);
drop table if exists $differences;
`))
}
