package guard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
)

// None stands for a column that a table does not have.
const None = "-"

// A Table says where a table of yours keeps what its rows are at. It needs no column of Pawl's; an empty name is the default, and
// [None] says that there is no such column.
type Table struct {
	Name string // "orders" or "shop.orders"; required

	ID           string // of any type; default "id"
	Status       string // text or an enum; default "status"
	Result       string // what the work returned; default None
	CompletedAt  string // timestamptz; default "completed_at"
	ClaimedAt    string // timestamptz, of the last attempt: who has claimed the row, and how long ago; default "claimed_at"
	LastError    string // text; default "last_error"
	AttemptCount string // integer, not null; default "attempt_count"
	CreatedAt    string // timestamptz; default None. Without it, a row whose message was lost before the first claim looks like a fresh one
	Monotone     string // without CreatedAt: a column that only grows, such as a serial id; a [Sweeper] dates rows by it. Default None

	Pending    string // the four states, in Status; default "pending"
	Processing string // default "processing"
	Completed  string // default "completed"
	Error      string // default "error"
}

// Rows guards the work on the rows of one table. All its methods may be called at once.
type Rows struct {
	pool  *pgxpool.Pool
	table Table
	sql   statements
	swept sweepers
}

// New checks the mapping, without asking the database, and completes it.
func New(pool *pgxpool.Pool, t Table) (*Rows, error) {
	if pool == nil {
		return nil, &pawl.Error{Op: "guard.new", Code: pawl.CodeArgumentInvalid, Err: errors.New("the pool is missing")}
	}
	for field, fallback := range map[*string]string{
		&t.ID: "id", &t.Status: "status", &t.Result: None, &t.CompletedAt: "completed_at", &t.ClaimedAt: "claimed_at",
		&t.LastError: "last_error", &t.AttemptCount: "attempt_count", &t.CreatedAt: None, &t.Monotone: None,
		&t.Pending: "pending", &t.Processing: "processing", &t.Completed: "completed", &t.Error: "error",
	} {
		if *field == "" {
			*field = fallback
		}
	}
	if err := t.check(); err != nil {
		return nil, &pawl.Error{Op: "guard.new", Code: pawl.CodeArgumentInvalid, Err: err}
	}
	return &Rows{pool: pool, table: t, sql: t.statements()}, nil
}

func (t Table) check() error {
	if t.Name == "" || t.ID == None || t.Status == None {
		return errors.New("the Name, the ID and the Status of the table are required")
	}
	states := map[string]bool{t.Pending: true, t.Processing: true, t.Completed: true, t.Error: true}
	if len(states) != 4 {
		return errors.New("the four states must differ")
	}
	return nil
}

// statements are the texts for one table. $1 is the row's id; names are quoted, states are literals, so that an enum will do and
// a partial index on the status can be used.
type statements struct {
	complete string // pending → completed
	result   string // $2: what the work returned
	fail     string // $2: the error; of a row that this transaction has completed
	failLate string // $2: the error; of a row that is pending, after the transaction was lost
	look     string // what the status is
	claim    string // pending → processing; answers the token
	settle   string // processing under token $2 → completed
	refuse   string // processing under token $2 → error $3
}

func (t Table) statements() statements {
	at := func(column, value string) string {
		if column == None {
			return ""
		}
		return ", " + quote(column) + " = " + value
	}
	update := "update " + t.quoted() + " set " + quote(t.Status) + " = "
	where := " where " + quote(t.ID) + " = $1"
	is := func(state string) string { return " and " + quote(t.Status) + " = " + literal(state) }
	counted := at(t.AttemptCount, quote(t.AttemptCount)+" + 1")
	token := " and " + quote(t.ClaimedAt) + " = $2"
	s := statements{
		complete: update + literal(t.Completed) + at(t.CompletedAt, now) + at(t.ClaimedAt, now) + counted + where + is(t.Pending),
		fail: update + literal(t.Error) + at(t.CompletedAt, "null") + at(t.ClaimedAt, now) + at(t.LastError, "$2") + where +
			is(t.Completed),
		failLate: update + literal(t.Error) + at(t.ClaimedAt, now) + counted + at(t.LastError, "$2") + where + is(t.Pending),
		look:     "select " + quote(t.Status) + "::text, pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.<>) '' from " + t.quoted() + where,
		claim:    update + literal(t.Processing) + at(t.ClaimedAt, now) + counted + where + is(t.Pending),
		settle:   update + literal(t.Completed) + at(t.CompletedAt, now) + where + is(t.Processing) + token,
		refuse:   update + literal(t.Error) + at(t.LastError, "$3") + where + is(t.Processing) + token,
	}
	if t.Result != None {
		s.result = "update " + t.quoted() + " set " + quote(t.Result) + " = $2" + where
	}
	if t.ClaimedAt != None {
		s.claim += " returning " + quote(t.ClaimedAt)
	}
	return s
}

const now = "pg_catalog.clock_timestamp()"

func (t Table) quoted() string { return pgx.Identifier(strings.Split(t.Name, ".")).Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(state string) string {
	return "'" + strings.ReplaceAll(state, "'", "''") + "'"
}

// stored is an error as a row keeps it: at most 4,000 characters, without NUL, and marked if no retry can help.
func stored(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if pawl.IsFinal(err) && !strings.HasPrefix(text, finalMark) {
		text = finalMark + text
	}
	return fmt.Sprintf("%.4000s", text)
}

// finalMark begins the error of a row that is not driven again.
const finalMark = "final: "
