package vet

import (
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// A statement is what the analyzers know of a SQL text.
type statement struct {
	text    string   // lower case, without comments and quotes of identifiers
	verb    string   // select, insert, update, delete, with …
	reads   []string // tables in FROM and JOIN
	inserts []string
	updates []string
	deletes []string
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`)
	spaces    = regexp.MustCompile(`\s+`)
	beginsSQL = regexp.MustCompile(`^\(?\s*(select|insert into|update|delete from|with|savepoint|rollback to|release|lock|merge into) `)
	intoTable = regexp.MustCompile(`\binsert into ([\w.]+)`)
	setTable  = regexp.MustCompile(`\bupdate (?:only )?([\w.]+)(?: (?:as )?\w+)? set\b`)
	offTable  = regexp.MustCompile(`\bdelete from (?:only )?([\w.]+)`)
	fromTable = regexp.MustCompile(`\b(?:from|join) (?:only )?([a-z_][\w.]*)`)
	forUpdate = regexp.MustCompile(`\bfor (?:no key )?update\b|\bfor (?:key )?share\b`)
	idColumn  = regexp.MustCompile(`\b(?:\w*(?:message|msg|event|delivery|request|dedup\w*|idempotency)_?(?:id|key|uuid|hash)|key|consumer)\b`)
	firstID   = regexp.MustCompile(`\binsert into [\w.]+(?: as \w+)? \( ?(?:consumer ?, ?)?(?:message|msg|event|delivery|webhook|request|idempotency)_(?:id|key|uuid) ?[,)]`)
	conflict  = regexp.MustCompile(`\bon conflict\b`)
)

// parseSQL returns nil if a text is not a statement that matters here. Parts that are not constant
// stand in it as "?".
func parseSQL(text string) *statement {
	text = comments.ReplaceAllString(text, " ")
	text = strings.NewReplacer(`"`, "", "`", "", "?.", "").Replace(strings.ToLower(text))
	text = strings.TrimSpace(spaces.ReplaceAllString(text, " ")) + " "
	m := beginsSQL.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	verb, _, _ := strings.Cut(m[1], " ")
	s := &statement{text: strings.TrimSpace(text), verb: verb}
	s.inserts = tables(intoTable, s.text)
	s.updates = tables(setTable, s.text)
	s.deletes = tables(offTable, s.text)
	for _, table := range tables(fromTable, strings.ReplaceAll(s.text, "delete from", "delete")) {
		if !strings.Contains(s.text, table+" as (") {
			s.reads = append(s.reads, table)
		}
	}
	return s
}

// tables returns the names of tables without their schemas.
func tables(of *regexp.Regexp, text string) (names []string) {
	for _, m := range of.FindAllStringSubmatch(text, -1) {
		name := m[1][strings.LastIndex(m[1], ".")+1:]
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (s *statement) writes() []string {
	return append(append(append([]string(nil), s.inserts...), s.updates...), s.deletes...)
}

// savepoint reports whether the statement sets a savepoint or goes back to one.
func (s *statement) savepoint() bool {
	return s.verb == "savepoint" || s.verb == "rollback" || s.verb == "release"
}

// locks reports whether the statement keeps other transactions from its rows or its key.
func (s *statement) locks() bool {
	return forUpdate.MatchString(s.text) || strings.Contains(s.text, "advisory") || s.verb == "lock" || strings.Contains(s.text, " isolation level ")
}

// where returns the text after the last WHERE.
func (s *statement) where() string {
	at := strings.LastIndex(s.text, " where ")
	if at < 0 {
		return ""
	}
	return s.text[at+len(" where "):]
}

// selected returns the list of a SELECT.
func (s *statement) selected() string {
	list, found := strings.CutPrefix(s.text, "select ")
	if !found {
		return ""
	}
	if before, _, found := strings.Cut(list, " from "); found {
		return before
	}
	return list
}

var (
	markSurely = regexp.MustCompile(`(?:^|_)(?:processed|idempot\w*|dedup\w*|deduplication|handled|consumed)_?(?:messages?|events?|msgs?|deliver(?:y|ies)|webhooks?|keys?|requests?|records?|ids?|log|table)?$`)
	markMaybe  = regexp.MustCompile(`(?:^|_)(?:inbox|seen|received)(?:_|$)`)
	markWords  = regexp.MustCompile(`(?:^|_)(?:processed|idempot\w*|dedup\w*|handled|consumed)_`)
)

// marks returns the table of processed messages into which the statement inserts, or "".
func (s *statement) marks() string {
	for _, table := range s.inserts {
		if strings.Contains(table, "last_seen") {
			continue
		}
		if markSurely.MatchString(table) || (markMaybe.MatchString(table) || markWords.MatchString(table)) && (conflict.MatchString(s.text) || idColumn.MatchString(s.text)) {
			return table
		}
		if conflict.MatchString(s.text) && strings.Contains(s.text, "do nothing") && firstID.MatchString(s.text) {
			return table
		}
	}
	return ""
}

// textOf returns the constant parts of a string, with "?" for the others. It looks at 200 values at
// most, since a loop makes a string from itself.
func textOf(v ssa.Value) string {
	left := 200
	return textWithin(&left, v)
}

func textWithin(left *int, v ssa.Value) string {
	if *left == 0 {
		return "?"
	}
	*left--
	switch v := v.(type) {
	case *ssa.Const:
		if v.Value != nil && v.Value.Kind() == constant.String {
			return constant.StringVal(v.Value)
		}
	case *ssa.BinOp:
		if v.Op == token.ADD {
			return textWithin(left, v.X) + textWithin(left, v.Y)
		}
	case *ssa.Phi:
		for _, edge := range v.Edges {
			if text := textWithin(left, edge); text != "?" && text != "" {
				return text
			}
		}
	case *ssa.ChangeType:
		return textWithin(left, v.X)
	case *ssa.Convert:
		return textWithin(left, v.X)
	case *ssa.UnOp:
		if v.Op == token.MUL {
			switch at := v.X.(type) {
			case *ssa.Global:
				if s := onlyGlobalStore(at); s != nil {
					return textWithin(left, s.Val)
				}
			case *ssa.Alloc:
				if s := onlyStore(at); s != nil {
					return textWithin(left, s.Val)
				}
			case *ssa.FreeVar:
				if a, is := binding(at).(*ssa.Alloc); is {
					if s := onlyStore(a); s != nil {
						return textWithin(left, s.Val)
					}
				}
			}
		}
	case *ssa.FreeVar:
		if b := binding(v); b != nil {
			return textWithin(left, b)
		}
	case *ssa.Call:
		for _, arg := range v.Call.Args {
			if b, is := arg.Type().Underlying().(*types.Basic); is && b.Info()&types.IsString != 0 {
				if text := textWithin(left, arg); text != "?" {
					return verbs.ReplaceAllString(text, "?")
				}
			}
		}
	}
	return "?"
}

var verbs = regexp.MustCompile(`%(?:\[\d+\])?[sdvq]`)

// onlyGlobalStore returns the only assignment to a package's variable, or nil.
func onlyGlobalStore(g *ssa.Global) (only *ssa.Store) {
	if g.Pkg == nil {
		return nil
	}
	for _, member := range g.Pkg.Members {
		fn, is := member.(*ssa.Function)
		if !is {
			continue
		}
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				if s, is := instr.(*ssa.Store); is && s.Addr == ssa.Value(g) {
					if only != nil {
						return nil
					}
					only = s
				}
			}
		}
	}
	return only
}
