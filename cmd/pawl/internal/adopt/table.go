package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Choice is the table and what its columns mean. Empty columns are looked for.
type Choice struct {
	Table      string // as in SQL: processed_messages, billing.processed, "Inbox"
	Consumer   string
	Key        string
	Time       string
	Payload    string // the message's octets, for the backfill; never looked for
	Scope      string // a second column of the unique index
	ScopeValue string
}

// A Column is a column of the table. Type is as in SQL, and Base is the type below a domain.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Base     string `json:"-"`
	NotNull  bool   `json:"not_null"`
	Default  bool   `json:"has_default"`
	Computed bool   `json:"-"` // generated: it takes no values
	Collated bool   `json:"-"` // its collation is not the database's
	Moody    bool   `json:"-"` // its collation has equal strings of different octets
	Quoted   string `json:"-"`
}

func (c Column) isTime() bool { return strings.HasPrefix(c.Base, "timestamp") }

// A Table is a team's table that fits an adoption.
type Table struct {
	Consumer    string   `json:"consumer"`
	Name        string   `json:"table"` // with its schema, quoted as SQL needs it
	Index       string   `json:"unique_index"`
	Key         Column   `json:"key"`
	Time        *Column  `json:"time,omitempty"`
	Payload     *Column  `json:"payload,omitempty"`
	Scope       *Column  `json:"scope,omitempty"`
	Required    []Column `json:"required"` // other columns that an insert must fill
	Columns     []Column `json:"columns"`
	Days        int      `json:"days"` // how many days of rows matter
	Rows        Rows     `json:"rows"`
	Notes       []string `json:"notes"`
	choice      Choice
	oid         uint32
	schema      string
	quotedScope string   // value of the scope as a literal
	writers     []string // quoted roles that may insert
	names       names
}

// Rows are counts of the first rows of the table, at most [readLimit].
type Rows struct {
	Read    int64      `json:"read"`
	More    bool       `json:"more"`    // there are more than were read
	About   int64      `json:"about"`   // the planner's estimate of all
	Recent  int64      `json:"recent"`  // rows read that are younger than Days
	NoKey   int64      `json:"no_key"`  // rows read without a key
	Unfit   int64      `json:"unfit"`   // keys that are empty or longer than 255 octets
	NoBody  int64      `json:"no_body"` // rows read without a payload
	NoTime  int64      `json:"no_time"` // rows read without a time; they count as recent
	Oldest  *time.Time `json:"oldest"`  // of the rows read
	Newest  *time.Time `json:"newest"`  // of the rows read
	Deleted int64      `json:"deleted"` // since the statistics began
}

// readLimit bounds how many rows an inspection reads.
const readLimit = 200_000

// defaultDays is the default retention of 28 days and the tenth for which rows stay longer.
const defaultDays = 31

// keyTypes are the types of a key. Equal values of these types have one text. least is a value
// below all others, and readable is a condition on a text $key that can be read as the type.
var keyTypes = map[string]struct{ least, readable string }{
	"text":              {},
	"character varying": {},
	"uuid":              {"00000000-0000-0000-0000-000000000000", "$key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'"},
	"smallint":          {"-32768", "case when $key ~ '^(0|-?[1-9][0-9]{0,4})$' then $key::int between -32768 and 32767 end"},
	"integer":           {"-2147483648", "case when $key ~ '^(0|-?[1-9][0-9]{0,9})$' then $key::bigint between -2147483648 and 2147483647 end"},
	"bigint": {"-9223372036854775808",
		"case when $key ~ '^(0|-?[1-9][0-9]{0,18})$' then $key::numeric between -9223372036854775808 and 9223372036854775807 end"},
}

// Find reads the catalog and the first rows of a table. A [Refusal] says what stands against an
// adoption.
func Find(ctx context.Context, conn *pgx.Conn, c Choice) (*Table, error) {
	t := &Table{Consumer: c.Consumer, choice: c, Required: []Column{}, Notes: []string{}}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, read := range []func(context.Context, pgx.Tx) error{t.resolve, pin, impatient, t.find, t.columns, t.unique, t.assign, t.quote, t.rights, t.look} {
			if err := read(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// pin sets the path of a transaction, so that no other role's operator or function is called. The
// path of the session stays, because it may be a pooler's.
func pin(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)")
	return err
}

// impatient bounds how long the transaction waits for a migration that has locked the table.
func impatient(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "set local lock_timeout = '5s'")
	return err
}

// pinned runs do in a transaction with that path.
func pinned(ctx context.Context, conn *pgx.Conn, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pin(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

// resolve finds the table as a statement of this session would.
func (t *Table) resolve(ctx context.Context, tx pgx.Tx) error {
	var oid *uint32
	if err := tx.QueryRow(ctx, "select pg_catalog.to_regclass($1)::pg_catalog.oid", t.choice.Table).Scan(&oid); err != nil {
		return err
	}
	if oid == nil {
		return t.missing(ctx, tx)
	}
	t.oid = *oid
	return nil
}

// find reads what kind of relation it is.
func (t *Table) find(ctx context.Context, tx pgx.Tx) error {
	var kind, persistence string
	var hidden, readable, children bool
	err := tx.QueryRow(ctx, `
select c.relkind::text, c.relpersistence::text, n.nspname, pg_catalog.format('%I.%I', n.nspname, c.relname),
       pg_catalog.row_security_active(c.oid), pg_catalog.has_table_privilege(c.oid, 'select'),
       exists (select from pg_catalog.pg_inherits as h join pg_catalog.pg_class as k on k.oid = h.inhrelid
                where h.inhparent = c.oid and not k.relispartition),
       case when c.reltuples < 0 then 0 else c.reltuples::bigint end,
       coalesce(pg_catalog.pg_stat_get_tuples_deleted(c.oid), 0)
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
 where c.oid = $1`, t.oid).Scan(&kind, &persistence, &t.schema, &t.Name, &hidden, &readable, &children, &t.Rows.About, &t.Rows.Deleted)
	if err != nil {
		return err
	}
	switch {
	case t.schema == "pawl" || t.schema == "pawl_v1":
		return refuse("name your own table of processed messages", "%s is Pawl's own", t.Name)
	case slices.Contains([]string{"pg_catalog", "information_schema", "pg_toast"}, t.schema):
		return refuse("name your own table of processed messages", "%s is part of PostgreSQL", t.Name)
	case kind == "v" || kind == "m":
		return refuse("name the table below it", "%s is a view", t.Name)
	case kind == "f":
		return refuse("run this in the database that has the table: the effect and the row must be one transaction", "%s is a foreign table", t.Name)
	case kind != "r" && kind != "p":
		return refuse("name your own table of processed messages", "%s is not a table", t.Name)
	case persistence == "t":
		return refuse("name a table that other sessions see", "%s is a temporary table", t.Name)
	case children:
		return refuse("move the rows into one table first", "%s has child tables, whose rows its unique index does not see", t.Name)
	case !readable:
		return refuse("connect as its owner, or grant select on it to this user", "this user cannot read %s", t.Name)
	case hidden:
		return refuse("connect as a user with bypassrls, or as the owner without force row level security", "row security hides rows of %s from this user", t.Name)
	}
	if persistence == "u" {
		t.note("the table is unlogged: after a crash of the server it is empty, and every redelivery takes effect again")
	}
	return nil
}

// missing says that there is no such table, with a near name if there is one.
func (t *Table) missing(ctx context.Context, tx pgx.Tx) error {
	if err := pin(ctx, tx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
select pg_catalog.format('%I.%I', n.nspname, c.relname)
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p')
   and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
   and lower($1) in (lower(c.relname), lower(n.nspname || '.' || c.relname))
 order by 1
 limit 1`, strings.ReplaceAll(t.choice.Table, `"`, ""))
	if err != nil {
		return err
	}
	near, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	next := "correct the name, or add its schema, as in: billing.processed_messages"
	if len(near) > 0 {
		next = "did you mean '" + near[0] + "'? Names with capitals need double quotes inside of the shell's"
	}
	return refuse(next, "there is no table %s", t.choice.Table)
}

func (t *Table) columns(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
       pg_catalog.format_type(case y.typtype when 'd' then y.typbasetype else y.oid end, null),
       a.attnotnull, a.atthasdef or a.attidentity <> '', a.attgenerated <> '',
       coalesce(l.collname <> 'default', false), coalesce(not l.collisdeterministic, false), pg_catalog.quote_ident(a.attname)
  from pg_catalog.pg_attribute as a
  join pg_catalog.pg_type as y on y.oid = a.atttypid
  left join pg_catalog.pg_collation as l on l.oid = a.attcollation
 where a.attrelid = $1
   and a.attnum > 0
   and not a.attisdropped
 order by a.attnum`, t.oid)
	if err != nil {
		return err
	}
	t.Columns, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Column])
	return err
}

// column returns a column that the command line names.
func (t *Table) column(flag, name string) (*Column, error) {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i], nil
		}
	}
	return nil, refuse("its columns: "+t.list(t.Columns), "--%s: %s has no column %s", flag, t.Name, name)
}

func (t *Table) list(columns []Column) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.Name+" "+c.Type)
	}
	return strings.Join(names, ", ")
}

// unique finds the unique index that decides whether a message is a duplicate, and with it the key.
func (t *Table) unique(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
select c.relname, array(
         select a.attname::text
           from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, n)
           join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
          where k.n <= i.indnkeyatts)
  from pg_catalog.pg_index as i
  join pg_catalog.pg_class as c on c.oid = i.indexrelid
 where i.indrelid = $1
   and i.indisunique and i.indimmediate and i.indisvalid and i.indisready
   and i.indpred is null and i.indexprs is null
 order by i.indisprimary desc, i.indnkeyatts, c.relname`, t.oid)
	if err != nil {
		return err
	}
	type index struct {
		Name    string
		Columns []string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return err
	}
	key := t.choice.Key
	if key != "" {
		if _, err := t.column("key", key); err != nil {
			return err
		}
	}
	var other *index
	for i, x := range all {
		switch found := slices.DeleteFunc(slices.Clone(x.Columns), func(c string) bool { return c == t.choice.Scope }); {
		case len(found) == 1 && (t.choice.Scope != "") == (len(x.Columns) == 2) && (key == "" || found[0] == key):
			t.Index, t.choice.Key = x.Name, found[0]
			return nil
		case other == nil && (key == "" || slices.Contains(x.Columns, key)):
			other = &all[i]
		}
	}
	switch {
	case t.choice.Scope != "":
		return refuse("name the two columns of the unique index by --key and --scope", "no unique index of %s has the key and %s, and no other column", t.Name, t.choice.Scope)
	case other != nil && t.timed(other.Columns) != "":
		return refuse("make a unique index on the key alone, in a table that is not partitioned by time", "the unique index %s has the time %s: the same message at another time is another row", other.Name, t.timed(other.Columns))
	case other != nil && len(other.Columns) == 2:
		scope := other.Columns[0]
		if scope == key {
			scope = other.Columns[1]
		}
		return refuse("pass the value of this consumer, as in: --scope "+scope+"=VALUE", "the unique index %s has two columns: %s", other.Name, strings.Join(other.Columns, ", "))
	case other != nil:
		return refuse("make a unique index on the message's key alone, or on the key and one --scope column", "the unique index %s has %d columns: %s", other.Name, len(other.Columns), strings.Join(other.Columns, ", "))
	case key == "":
		return refuse("pass --key, and see what is missing", "%s has no unique index, so it does not decide between two deliveries at once", t.Name)
	}
	return t.notUnique(ctx, tx, key)
}

// timed returns the first of the columns that is a time.
func (t *Table) timed(names []string) string {
	for _, c := range t.Columns {
		if slices.Contains(names, c.Name) && (c.isTime() || c.Base == "date") {
			return c.Name
		}
	}
	return ""
}

// notUnique says how many keys are doubled already.
func (t *Table) notUnique(ctx context.Context, tx pgx.Tx, key string) error {
	quoted := pgx.Identifier{key}.Sanitize()
	var doubled int64
	if err := tx.QueryRow(ctx, fmt.Sprintf(
		"select count(*) from (select from (select p.%s as k from %s as p limit %d) as r group by r.k having count(*) > 1) as d", quoted, t.Name, readLimit)).Scan(&doubled); err != nil {
		return err
	}
	next := fmt.Sprintf("create unique index concurrently on %s (%s)", t.Name, quoted)
	if doubled > 0 {
		next = "these messages may have taken effect twice: find out, delete the copies, then: " + next
	}
	return refuse(next, "%s has no plain unique index on %s, so it does not decide between two deliveries at once; %d of its keys are there twice", t.Name, key, doubled)
}

// assign gives the columns their meaning.
func (t *Table) assign(context.Context, pgx.Tx) error {
	key, err := t.column("key", t.choice.Key)
	if err != nil {
		return err
	}
	t.Key = *key
	switch _, known := keyTypes[key.Base]; {
	case !known:
		return refuse("add a column of type text with the key as the consumer gets it, with a unique index, and pass it as --key",
			"the key %s is of type %s: Pawl compares keys as text, and only text, uuid and whole numbers have one text for each value", key.Name, key.Type)
	case key.Moody:
		return refuse("adopt by hand: two texts that this table takes for one key are two keys for Pawl", "the collation of %s takes different texts for equal", key.Name)
	case strings.HasPrefix(key.Base, "u") || strings.HasSuffix(key.Base, "int") || key.Base == "integer":
		t.note("Pawl's key is the text of %s, such as %s: the consumer's Delivery.Key must be written in the same way", key.Name, examples[key.Base])
	}
	if err := t.assignTime(); err != nil {
		return err
	}
	if t.choice.Payload != "" {
		if t.Payload, err = t.column("payload", t.choice.Payload); err != nil {
			return err
		}
		switch t.Payload.Base {
		case "bytea", "text", "character varying", "json":
		case "jsonb":
			return refuse("leave --payload out", "jsonb does not keep the octets of a message, so %s gives no fingerprint", t.Payload.Name)
		default:
			return refuse("pass the column with the message's octets, or leave --payload out", "the payload %s is of type %s", t.Payload.Name, t.Payload.Type)
		}
	}
	if t.choice.Scope != "" {
		if t.Scope, err = t.column("scope", t.choice.Scope); err != nil {
			return err
		}
	}
	for _, c := range t.Columns {
		if c.NotNull && !c.Default && !c.Computed && !t.uses(c) {
			t.Required = append(t.Required, c)
		}
	}
	return nil
}

// examples are values of key types.
var examples = map[string]string{"uuid": "5f0c8e1a-3b1d-4c1e-9f57-8a2d0c6b7e42", "smallint": "17", "integer": "17", "bigint": "17"}

// uses reports whether a column has a meaning of its own.
func (t *Table) uses(c Column) bool {
	for _, of := range []*Column{&t.Key, t.Time, t.Payload, t.Scope} {
		if of != nil && of.Name == c.Name {
			return true
		}
	}
	return false
}

func (t *Table) assignTime() (err error) {
	if name := t.choice.Time; name != "" {
		if t.Time, err = t.column("time", name); err == nil && !t.Time.isTime() {
			err = refuse("leave --time out: then all rows are copied", "the time %s is of type %s", name, t.Time.Type)
		}
		return err
	}
	for i, c := range t.Columns {
		switch {
		case !c.isTime():
		case t.Time != nil:
			return refuse("pass the time at which the message was processed, as in: --time "+t.Time.Name, "%s has several times: %s and %s", t.Name, t.Time.Name, c.Name)
		default:
			t.Time = &t.Columns[i]
		}
	}
	return nil
}

// quote asks the server to quote what is not an identifier of the catalog.
func (t *Table) quote(ctx context.Context, tx pgx.Tx) error {
	t.names = namesOf(t.Consumer)
	at := []any{t.schema, t.names.base + "_fingerprint", t.names.base + "_shadow", t.names.base + "_differences", t.names.base + "_backfill", t.names.base + "_back", t.Consumer, t.choice.ScopeValue}
	return tx.QueryRow(ctx, `
select pg_catalog.format('%I.%I', $1::text, $2::text), pg_catalog.format('%I.%I', $1::text, $3::text), pg_catalog.format('%I.%I', $1::text, $4::text),
       pg_catalog.format('%I.%I', $1::text, $5::text), pg_catalog.format('%I.%I', $1::text, $6::text),
       pg_catalog.quote_literal($7::text), pg_catalog.quote_literal($8::text)`, at...).
		Scan(&t.names.fingerprint, &t.names.shadow, &t.names.differences, &t.names.backfill, &t.names.back, &t.names.consumer, &t.quotedScope)
}

// rights reads the roles that may insert into the table: they call the shadow.
func (t *Table) rights(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
select distinct case x.grantee when 0 then 'public' else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(x.grantee)) end
  from pg_catalog.pg_class as c
 cross join lateral pg_catalog.aclexplode(coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) as x
 where c.oid = $1
   and x.privilege_type = 'INSERT'
   and x.grantee <> (select r.oid from pg_catalog.pg_roles as r where r.rolname = current_user)
 order by 1`, t.oid)
	if err != nil {
		return err
	}
	t.writers, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return err
}

// look counts the first rows. A window without an end counts as ten years, the longest window that
// has an end.
func (t *Table) look(ctx context.Context, tx pgx.Tx) error {
	if err := tx.QueryRow(ctx, `
select greatest($2, ceil(coalesce(max(coalesce(c.window_ms, 315360000000)), 0) * 1.1 / 86400000)::int)
  from pawl.consumer as c
 where c.name = $1`, t.Consumer, defaultDays).Scan(&t.Days); err != nil {
		return err
	}
	at, untimed, body, recent := "null::timestamptz", "false", "false", "true"
	if t.Time != nil {
		at, untimed, recent = "p."+t.Time.Quoted+"::timestamptz", "p."+t.Time.Quoted+" is null", t.isRecent()
	}
	if t.Payload != nil {
		body = "p." + t.Payload.Quoted + " is null"
	}
	where := "true"
	if t.Scope != nil {
		where = t.ofScope()
	}
	err := tx.QueryRow(ctx, fmt.Sprintf(`
select count(*), count(*) filter (where r.recent), count(*) filter (where r.key is null),
       count(*) filter (where octet_length(r.key) not between 1 and 255), count(*) filter (where r.bodiless), count(*) filter (where r.untimed), min(r.at), max(r.at)
  from (select p.%s::text as key, %s as at, %s as bodiless, %s as untimed, coalesce(%s, true) as recent from %s as p where %s limit %d) as r`,
		t.Key.Quoted, at, body, untimed, recent, t.Name, where, readLimit+1)).
		Scan(&t.Rows.Read, &t.Rows.Recent, &t.Rows.NoKey, &t.Rows.Unfit, &t.Rows.NoBody, &t.Rows.NoTime, &t.Rows.Oldest, &t.Rows.Newest)
	if err != nil {
		return err
	}
	t.Rows.More = t.Rows.Read > readLimit
	t.Rows.About = max(t.Rows.About, t.Rows.Read)
	t.noteRows()
	return nil
}

func (t *Table) noteRows() {
	r := t.Rows
	if r.NoKey > 0 {
		t.note("rows without a key: %d. They never kept a message from being handled twice, and are left out", r.NoKey)
	}
	if r.Unfit > 0 {
		t.note("keys that are empty or longer than 255 octets: %d. Pawl cannot hold them, and such a message is a dead letter after the switch", r.Unfit)
	}
	switch {
	case r.NoBody > 0 && t.Time == nil:
		t.note("rows without a payload: %d. They cannot be backfilled, and without a time they never become old: add a column with the time of processing", r.NoBody)
	case r.NoBody > 0:
		t.note("rows without a payload: %d. They cannot be backfilled: the table is needed until they are %d days old", r.NoBody, t.window())
	}
	if r.NoTime > 0 {
		t.note("rows without a time: %d. They count as recent until they have one: %s", r.NoTime, t.SetTime())
	}
	if r.Deleted > 0 {
		t.note("rows deleted since the statistics began: %d. Messages that are older than the oldest row are not known, neither before nor after", r.Deleted)
	}
	switch {
	case t.Payload == nil && t.Time == nil:
		t.note("without --payload there is no backfill, and without a time no row becomes old, so the table is needed for ever: add a column with the time of processing")
	case t.Payload == nil:
		t.note("without --payload there is no backfill, because an id alone has no fingerprint: the table decides until its rows are %d days old", t.window())
	case t.Time == nil:
		t.note("without a time all rows are copied, and the table grows for ever or is emptied by other means")
	}
	if len(t.Required) > 0 {
		t.note("the handler's insert must also fill %s, and there is no way back after step 4", t.list(t.Required))
	}
	if t.Payload != nil && t.Payload.NotNull && !t.Payload.Default {
		t.note("the inbox keeps no payload, and %s must not be null: there is no way back after step 4", t.Payload.Name)
	}
}

func (t *Table) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}
