package txn

import "strings"

// look reads what the statements of a text do beside their work. soils: one of them changes the session beyond the end of its transaction,
// by SET without LOCAL, set_config for the session, RESET, LISTEN or LOAD. drops: one drops what is prepared, by DEALLOCATE ALL or DISCARD ALL. ends: the first word of one that ends the transaction.
//
// It cannot see what a function, a DO block or a procedure does. There COMMIT is no worry, since PostgreSQL refuses it inside a
// transaction block (SQLSTATE 2D000). Nearly every text is one statement, of which only the first words are read.
func look(text string) (soils, drops bool, ends string) {
	soils = configures(text)
	for more := true; more; {
		var words [3]string
		words, text, more = statement(text)
		soils = soils || wordsSoil(words)
		drops = drops || words[0] == "deallocate" && (words[1] == "all" || words[2] == "all") || words[0] == "discard" && words[1] == "all"
		if ends == "" && wordsEnd(words) {
			ends = strings.ToUpper(words[0])
		}
	}
	return soils, drops, ends
}

// configures reports whether a call of set_config may change the session: its last argument is not
// the word true.
func configures(text string) bool {
	const name = "set_config"
	for {
		at := strings.Index(text, name)
		if at < 0 {
			at = strings.Index(text, "SET_CONFIG")
		}
		if at < 0 {
			return false
		}
		text = skipBlank(strings.TrimPrefix(text[at+len(name):], `"`))
		if !strings.HasPrefix(text, "(") {
			continue
		}
		if !strings.EqualFold(lastArgument(text), "true") {
			return true
		}
	}
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

func wordsSoil(w [3]string) bool {
	switch w[0] {
	case "reset", "listen", "load":
		return true
	case "set":
		return w[1] != "local" && w[1] != "transaction" && w[1] != "constraints"
	}
	return false
}

func wordsEnd(w [3]string) bool {
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

// statement returns the first three words of a text's first statement in lower case, and what stands behind its semicolon, if
// anything does.
func statement(text string) (words [3]string, rest string, more bool) {
	body := 0 // depth of BEGIN and CASE in a CREATE FUNCTION whose body is not quoted: semicolons in there end nothing
	for n := 0; ; {
		text = skipBlank(text)
		switch {
		case text == "":
			return words, "", false
		case text[0] == ';' && body == 0:
			rest = strings.TrimLeft(text, "; \t\r\n\f\v")
			return words, rest, rest != ""
		case !letter(text[0]):
			n, text = len(words), text[token(text):]
			continue
		}
		end := 1
		for end < len(text) && (letter(text[end]) || text[end] >= '0' && text[end] <= '9' || text[end] == '$') {
			end++
		}
		if n < len(words) {
			words[n] = strings.ToLower(text[:end])
			n++
		} else if strings.IndexByte(text, ';') < 0 {
			return words, "", false // what follows is of this statement
		}
		if words[0] == "create" && (words[1] == "function" || words[1] == "procedure" || words[1] == "or") {
			body += depth(text[:end], body)
		}
		if end < len(text) && text[end] == '\'' { // E'...', whose backslashes escape; B'...', X'...', N'...'
			end += quoted(text[end:], '\'', end == 1 && text[0]|0x20 == 'e')
		}
		text = text[end:]
	}
}

// depth is by how much a word changes that of a body.
func depth(word string, now int) int {
	switch {
	case strings.EqualFold(word, "begin"), now > 0 && strings.EqualFold(word, "case"):
		return 1
	case now > 0 && strings.EqualFold(word, "end"):
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

// quoted returns the length of a quoted text. A doubled quote is read as two texts side by side.
func quoted(text string, quote byte, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return i + 1
		case escapes && text[i] == '\\':
			i++
		}
	}
	return len(text)
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
