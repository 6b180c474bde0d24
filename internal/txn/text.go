package txn

import "strings"

// look reads what the statements of a text do beside their work. changes: one of them changes the
// session beyond the end of its transaction, by SET without LOCAL, set_config for the session,
// RESET, LISTEN or LOAD. drops: one drops what is prepared, by DEALLOCATE ALL or DISCARD ALL. ends:
// the first word of one that ends the transaction.
//
// It cannot see what a function, a DO block or a procedure does. There COMMIT is no worry, since
// PostgreSQL refuses it inside a transaction block (SQLSTATE 2D000). Nearly every text is one
// statement, of which only the first words are read.
//
// The body of a function in SQL (BEGIN ATOMIC … END) may hold semicolons. Its statements are looked
// at like others, since none that ends a transaction may stand there; its END ends no transaction.
// Texts are read as with standard_conforming_strings; see Unbroken.
func look(text string) (changes, drops bool, ends string) {
	changes = configures(text)
	bodies := 0 // of functions, that are open
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

// configures reports whether a call of set_config may change the session: its last argument is not
// the word true.
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

// endsInFold reports whether a text ends in a word, in upper or lower case.
func endsInFold(text, word string) bool {
	return len(text) >= len(word) && strings.EqualFold(text[len(text)-len(word):], word)
}

// lastArgument returns the last argument of a call whose parenthesis a text begins with.
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

// A statement is what is known of one.
type statement struct {
	words [4]string // the first ones, in lower case
	opens bool      // it is a CREATE FUNCTION or PROCEDURE with BEGIN ATOMIC, up to the first semicolon
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

// next returns a text's first statement up to its semicolon, and what stands behind that, if
// anything does.
func next(text string) (s statement, rest string, more bool) {
	depth, before := 0, "" // of parentheses; the word before
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
			return s, "", false // what follows is of this statement
		}
		switch {
		case before == "begin" && word == "atomic" && depth == 0 && s.routine():
			s.opens = true
		case before == "atomic" && word == "end":
			s.opens = false // an empty body
		}
		before = word
		if end < len(text) && text[end] == '\'' { // E'...', whose backslashes escape; B'...', X'...', N'...'
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

// token returns the length of a token that is no word.
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

// tag reports whether a text may stand between the dollars of a quote; $1 is none.
func tag(text string) bool {
	for i := range len(text) {
		if !letter(text[i]) && (i == 0 || text[i] < '0' || text[i] > '9') {
			return false
		}
	}
	return true
}

// quoted returns the length of a quoted text. A doubled quote is read as two texts side by side,
// but not where backslashes escape: there they would not in the second. Nor would they where the
// text goes on behind a line break.
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

// continued returns the length of what stands between two parts of one quoted text, with the quote
// that begins the second: blanks and comments to the end of their line, with a line break among
// them. 0: the text has ended.
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

// skipBlank drops blanks and comments, which may be nested.
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

// comment returns the length of a comment.
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
