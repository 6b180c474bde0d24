package txn

import "strings"

// look finds the side effects of the statements in a text. changes: a statement changes the session
// beyond the end of the transaction (SET without LOCAL, set_config for the session, RESET, LISTEN,
// LOAD). drops: a statement drops what is prepared (DEALLOCATE ALL, DISCARD ALL). ends: the first
// word of a statement that ends the transaction.
//
// look cannot see inside functions, DO blocks or procedures. COMMIT there does no harm, since
// PostgreSQL refuses it inside a transaction block (SQLSTATE 2D000). Nearly every text is one
// statement, of which only the first words are read.
//
// The body of a SQL function (BEGIN ATOMIC … END) may contain semicolons. Its statements are
// checked like others, since none that ends a transaction may stand there; its END ends no
// transaction. look assumes standard_conforming_strings; see Unbroken.
func look(text string) (changes, drops bool, ends string) {
	changes = configures(text)
	bodies := 0 // open bodies of functions
	for more := true; more; {
		var s statement
		s, text, more = next(text)
		changes = changes || s.changesSession()
		drops = drops || s.dropsPrepared()
		switch {
		case s.words[0] == "end" && bodies > 0:
			bodies--
		case ends == "" && s.ends():
			ends = strings.ToUpper(s.words[0])
		}
		if s.opens {
			bodies++
		}
	}
	return changes, drops, ends
}

// configures reports whether a call of set_config may change the session, that is, its last
// argument is not the word true.
func configures(text string) bool {
	for {
		head, rest, found := strings.Cut(text, "_")
		if !found {
			return false
		}
		text = rest
		if !endsInFold(head, "set") || len(rest) < len("config") || !strings.EqualFold(rest[:len("config")], "config") {
			continue
		}
		call := skipBlank(strings.TrimPrefix(rest[len("config"):], `"`))
		if strings.HasPrefix(call, "(") && !strings.EqualFold(lastArgument(call), "true") {
			return true
		}
	}
}

// endsInFold reports whether a text ends in a word, ignoring case.
func endsInFold(text, word string) bool {
	return len(text) >= len(word) && strings.EqualFold(text[len(text)-len(word):], word)
}

// lastArgument returns the last argument of a call. text begins with the call's opening
// parenthesis.
func lastArgument(text string) string {
	from, depth := 1, 0
	for at := 0; at < len(text); {
		switch text[at] {
		case '(', '[':
			depth++
		case ')', ']':
			if depth--; depth == 0 {
				return strings.TrimSpace(text[from:at])
			}
		case ',':
			if depth == 1 {
				from = at + 1
			}
		}
		at += token(text[at:])
	}
	return ""
}

// A statement holds the parsed start of one statement.
type statement struct {
	words [4]string // the first ones, in lower case
	// it is CREATE FUNCTION or PROCEDURE with BEGIN ATOMIC, up to the first semicolon
	opens bool
}

func (s statement) changesSession() bool {
	w := s.words
	switch w[0] {
	case "reset", "listen", "load":
		return true
	case "set":
		return w[1] != "local" && w[1] != "transaction" && w[1] != "constraints"
	}
	return false
}

func (s statement) dropsPrepared() bool {
	w := s.words
	return w[0] == "deallocate" && (w[1] == "all" || w[2] == "all") || w[0] == "discard" && w[1] == "all"
}

func (s statement) ends() bool {
	w := s.words
	switch w[0] {
	case "commit", "end", "abort":
		return true
	case "rollback":
		what := w[1]
		if what == "work" || what == "transaction" {
			what = w[2]
		}
		return what != "to"
	case "prepare":
		return w[1] == "transaction"
	}
	return false
}

// routine reports whether the statement creates a function or procedure.
func (s statement) routine() bool {
	what := s.words[1]
	if what == "or" {
		what = s.words[3]
	}
	return s.words[0] == "create" && (what == "function" || what == "procedure")
}

// next returns a text's first statement, up to its semicolon, and the rest of the text if there is
// any.
func next(text string) (s statement, rest string, more bool) {
	depth, before := 0, "" // depth of parentheses; the previous word
	for n := 0; ; {
		text = skipBlank(text)
		switch {
		case text == "":
			return s, "", false
		case text[0] == ';':
			rest = strings.TrimLeft(text, "; \t\r\n\f\v")
			return s, rest, rest != ""
		case !letter(text[0]):
			depth += nesting(text[0])
			n, before, text = len(s.words), "", text[token(text):]
			continue
		}
		end := 1
		for end < len(text) && (letter(text[end]) || text[end] >= '0' && text[end] <= '9' || text[end] == '$') {
			end++
		}
		word := strings.ToLower(text[:end])
		if n < len(s.words) {
			s.words[n] = word
			n++
		} else if strings.IndexByte(text, ';') < 0 {
			return s, "", false // the rest belongs to this statement
		}
		switch {
		case before == "begin" && word == "atomic" && depth == 0 && s.routine():
			s.opens = true
		case before == "atomic" && word == "end":
			s.opens = false // an empty body
		}
		before = word
		// E'...', whose backslashes escape; B'...', X'...', N'...'
		if end < len(text) && text[end] == '\'' {
			before = ""
			end += quoted(text[end:], '\'', word == "e")
		}
		text = text[end:]
	}
}

func nesting(c byte) int {
	switch c {
	case '(':
		return 1
	case ')':
		return -1
	}
	return 0
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

// token returns the length of a token that is not a word.
func token(text string) int {
	switch text[0] {
	case '\'', '"':
		return quoted(text, text[0], false)
	case '$':
		if end := strings.IndexByte(text[1:], '$'); end >= 0 && tag(text[1:end+1]) {
			mark := text[:end+2]
			if length := strings.Index(text[len(mark):], mark); length >= 0 {
				return length + 2*len(mark)
			}
			return len(text)
		}
	}
	return 1
}

// tag reports whether a text may stand between the dollars of a quote; that of $1 may not.
func tag(text string) bool {
	for i := range len(text) {
		if !letter(text[i]) && (i == 0 || text[i] < '0' || text[i] > '9') {
			return false
		}
	}
	return true
}

// quoted returns the length of a quoted text. A doubled quote is read as two adjacent texts, except
// where backslashes escape: there the second text would lose its escapes. The same holds for a text
// that continues after a line break.
func quoted(text string, quote byte, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] != quote:
		case escapes && i+1 < len(text) && text[i+1] == quote:
			i++
		case escapes && continued(text[i+1:]) > 0:
			i += continued(text[i+1:])
		default:
			return i + 1
		}
	}
	return len(text)
}

// continued returns the length of the gap between two parts of one quoted text, including the
// opening quote of the second. The gap consists of blanks and line comments, with at least one line
// break. It returns 0 if the text does not continue.
func continued(text string) int {
	rest, broken := text, false
	for rest != "" {
		switch c := rest[0]; {
		case c == '\'' && broken:
			return len(text) - len(rest) + 1
		case c == '\r', c == '\n':
			broken, rest = true, rest[1:]
		case c == ' ', c == '\t', c == '\f', c == '\v':
			rest = rest[1:]
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexAny(rest, "\r\n")
			if end < 0 {
				return 0
			}
			rest = rest[end:]
		default:
			return 0
		}
	}
	return 0
}

// skipBlank drops blanks and comments. Comments may be nested.
func skipBlank(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n\f\v")
		switch {
		case strings.HasPrefix(text, "--"):
			end := strings.IndexAny(text, "\r\n")
			if end < 0 {
				return ""
			}
			text = text[end:]
		case strings.HasPrefix(text, "/*"):
			text = text[comment(text):]
		default:
			return text
		}
	}
}

// comment returns the length of the block comment that text begins with.
func comment(text string) int {
	depth := 0
	for i := 0; i < len(text)-1; i++ {
		switch text[i : i+2] {
		case "/*":
			depth, i = depth+1, i+1
		case "*/":
			depth, i = depth-1, i+1
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}
