package layers

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// word matches a token of an SQL text: a name with its dots, an operator, a cast with its type, or
// another character.
var word = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`operator\([a-z0-9_]+\.[^)]*\)`,                // an operator with its schema
	`::\s*(?:[a-z_"][\w"]*\.)?[a-z_"][\w"]*`,       // a cast
	`:=|=>`,                                        // not operators
	`(?:[a-z_"§][\w"§]*\.)*(?:[a-z_"§][\w"§]*|\*)`, // a name, or all columns of one
	`\$?\d+(?:\.\d+)?`,
	`[-+*/<>=~!@#%^&|` + "`" + `?]+`,
	`[^\s\w]`,
}, "|"))

var (
	notSQL     = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)
	quoted     = regexp.MustCompile(`(?s)'(?:[^']|'')*'`)
	verbs      = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*\d*[a-zA-Z]`)
	isName     = regexp.MustCompile(`(?i)^[a-z_"][\w"]*$`)
	isOperator = regexp.MustCompile("^[-+*/<>=~!@#%^&|`?]+$")
)

// keywords may precede a parenthesis and are not functions that PostgreSQL looks up.
var keywords = strings.Fields(`in values and or not any all some exists coalesce greatest least extract row array over filter as using on from select
  join where then else when by conflict distinct union except intersect case is limit offset returning lateral materialized recursive with having set
  key unique check primary references only interval numeric varchar`)

// types are words of the grammar that always mean PostgreSQL's type.
var types = strings.Fields("int integer bigint smallint boolean numeric decimal dec real float double char character varchar time timestamp interval bit")

// catalogued are types of columns that the grammar does not know.
var catalogued = strings.Fields("text jsonb json bytea timestamptz uuid oid")

// compares are words that look an operator up.
var compares = strings.Fields("in between like ilike similar nullif")

// loose returns the operators, functions, types and relations of an SQL text that PostgreSQL would
// look up in the caller's search_path.
func loose(text string) (found []string) {
	text = quoted.ReplaceAllString(notSQL.ReplaceAllString(text, " "), "§")
	words := word.FindAllString(verbs.ReplaceAllString(text, "§"), -1)
	at := func(i int) string {
		if i < 0 || i >= len(words) {
			return ""
		}
		return strings.ToLower(words[i])
	}
	common, defines := commonTables(words), strings.Contains(strings.ToLower(text), "create table")
	depth, assigning := 0, -1 // the depth of a SET list whose next "=" assigns
	for i := range words {
		w, before, after := at(i), at(i-1), at(i+1)
		add := func() { found = append(found, strings.TrimSpace(before+" "+w+" "+after)) }
		switch {
		case w == "(":
			depth++
		case w == ")":
			depth--
		case w == "set":
			assigning = depth
		case w == "where" || w == "from" || w == ";":
			assigning = -1
		case strings.HasPrefix(w, "::"):
			name := strings.TrimSpace(w[2:])
			if !strings.Contains(name, ".") && !slices.Contains(types, name) {
				add()
			}
		case w == "*" && (before == "" || before == "(" || before == "," || before == "select" || before == "returning"):
		case w == "=" && depth == assigning && assigns(words, i):
		case isOperator.MatchString(w) && w != "=>":
			add()
		case slices.Contains(compares, w) && !(w == "in" && before == ""):
			add()
		case !isName.MatchString(w):
		case after == "(" && !slices.Contains(keywords, w) && before != "as" && before != "into" && !slices.Contains(common, w):
			add()
		case defines && slices.Contains(catalogued, w) && isName.MatchString(before), w == "using" && after == "(", before == "collate":
			add()
		case relates(at, i) && !slices.Contains(common, w):
			add()
		}
	}
	return found
}

// assigns reports whether the "=" at i follows a column name, or several in parentheses, in a SET
// list.
func assigns(words []string, i int) bool {
	for k := i - 1; k >= 0; k-- {
		switch strings.ToLower(words[k]) {
		case "set", ",", "local", "session":
			return k < i-1
		case "=", "(":
			return false
		}
	}
	return false
}

// relates reports whether the name at i is in the position of a table.
func relates(at func(int) string, i int) bool {
	switch at(i) {
	case "select", "lateral", "only", "unnest", "skip", "nowait", "of", "set", "update", "table", "exists":
		return false
	}
	switch at(i - 1) {
	case "join", "into", "truncate":
		return true
	case "update":
		return at(i-2) != "for" && at(i-2) != "do" && at(i-2) != "key"
	case "from":
		return at(i-2) != "distinct" && at(i-3) != "extract"
	}
	return false
}

// commonTables returns the names that a WITH clause defines.
func commonTables(words []string) (names []string) {
	if !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, "with") }) {
		return nil
	}
	for i, w := range words {
		if before := strings.ToLower(strings.Join(words[max(0, i-1):i], "")); before == "with" || before == "recursive" || before == "," || before == ")" {
			names = append(names, strings.ToLower(w))
		}
	}
	return names
}

// Names that resolve through the path are found, and no others.
func TestLoose(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"select c.detail ? 'unreplicated' from pawl_v1.inbox_claim($1) as c":                      "c.detail ? §",
		"select c.detail operator(pg_catalog.?) 'unreplicated' from pawl_v1.inbox_claim($1) as c": "",
		"select exists (select from pg_stat_activity as a where a.pid operator(pg_catalog.=) $1)": "from pg_stat_activity as",
		"select count(*) from pawl.job": "select count (",
		"select pg_catalog.count(*), j.* from pawl.job as j where not j.lane_head order by j.id limit $1":                             "",
		"select $1::text, $2::bigint, $3::pg_catalog.text, $4::bigint[]":                                                              "$1 ::text ,",
		"update pawl.job as j set status = $1, fence = j.fence + 1 where j.id = $2":                                                   "j.fence + 1; j.id = $2",
		"select coalesce(extract(epoch from b.at), 0) from pawl_v1.f(p => 1) as b (id, n)":                                            "",
		"with recursive names (n) as (select i.n from pawl.inbox as i), more as (select m.n from names as m) select more.n from more": "",
		"select j.id from pawl.job as j where j.id in (1, 2) and j.a between 1 and 2":                                                 "j.id in (; j.a between 1",
		"set local lock_timeout = '5s'; select 1 / 0":                                                                                 "1 / 0",
		"insert into orders (id, cents) values ($1, $2) on conflict (id) do update set cents = 1":                                     "into orders (",
		"select t.%[1]s from pawl.%s as t where t.n is distinct from %d -- a = b":                                                     "",
		"select c.name collate \"C\" from pawl.consumer as c join pawl.job as j using (name)":                                         "collate \"c\" from; j using (",
		"create table x.y (id bigint primary key, name text not null, at pg_catalog.timestamptz)":                                     "name text not",
		"select format('%I', 'x')": "select format (",
	} {
		if got := strings.Join(loose(text), "; "); got != want {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
}
