package txn

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// reported are the settings that the server reports when they change, at no cost.
var reported = [...]string{"application_name", "client_encoding", "DateStyle", "default_transaction_read_only", "IntervalStyle",
	"search_path", "session_authorization", "standard_conforming_strings", "TimeZone"}

// settings are the values of what is reported; empty for what this version of the server does not report.
type settings [len(reported)]string

func settingsOf(conn *pgconn.PgConn) (s settings) {
	for i, name := range reported {
		s[i] = conn.ParameterStatus(name)
	}
	return s
}

// soils reports whether a statement begins as one that changes the session beyond the end of its transaction: SET without LOCAL,
// or RESET. It is a look at the first words, so that it costs nothing that can be measured. What it cannot see is a call of
// set_config that is not local, and a SET inside of a function.
func soils(query string) bool {
	verb, rest := word(query)
	switch strings.ToLower(verb) {
	case "reset", "listen", "load":
		return true
	case "set":
		what, _ := word(rest)
		switch strings.ToLower(what) {
		case "local", "transaction", "constraints":
			return false
		}
		return true
	}
	return false
}

// ends reports whether a statement begins as one that ends the transaction. It is the same look.
func ends(query string) bool {
	verb, rest := word(query)
	switch strings.ToLower(verb) {
	case "commit", "end", "abort":
		return true
	case "rollback":
		for _, noise := range []string{"work", "transaction"} {
			if what, behind := word(rest); strings.EqualFold(what, noise) {
				rest = behind
			}
		}
		what, _ := word(rest)
		return !strings.EqualFold(what, "to")
	case "prepare":
		what, _ := word(rest)
		return strings.EqualFold(what, "transaction")
	}
	return false
}

// word returns the first word of a statement, and what follows it.
func word(text string) (first, rest string) {
	text = strings.TrimLeft(text, " \t\r\n;")
	for strings.HasPrefix(text, "--") {
		_, text, _ = strings.Cut(text, "\n")
		text = strings.TrimLeft(text, " \t\r\n;")
	}
	end := strings.IndexAny(text, " \t\r\n;")
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}
