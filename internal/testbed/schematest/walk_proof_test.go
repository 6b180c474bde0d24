//go:build proof

package schematest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A walk is a depth-first search through the states of a protocol, in one transaction.
type walk struct {
	protocol protocol
	matters  func(property string) bool
	conn     *pgconn.PgConn
	undo     string // sent before the next statement
	seen     map[place]bool
	path     []string
}

// A place is a state. Paths that lead to the same state are continued once.
type place struct {
	world world
	rows  rows
}

func newWalk(ctx context.Context, url string, p protocol, matters func(string) bool) (*walk, error) {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "begin").ReadAll()
	return &walk{protocol: p, matters: matters, conn: conn, seen: map[place]bool{}}, err
}

func (k *walk) close() { _ = k.conn.Close(context.Background()) }

// from visits everything that is reachable from a place. depth is the number of savepoints there.
func (k *walk) from(ctx context.Context, w world, now rows, depth int) error {
	if k.seen[place{w, now}] {
		return nil
	}
	k.seen[place{w, now}] = true
	for _, m := range k.protocol.moves(w, now) {
		k.path = append(k.path, m.name)
		if err := k.step(ctx, m, w, now, depth); err != nil {
			return err
		}
		k.path = k.path[:len(k.path)-1]
	}
	return nil
}

// step makes one move, judges it, continues from there, and undoes it.
func (k *walk) step(ctx context.Context, m move, w world, now rows, depth int) error {
	after, answer := now, ""
	if m.statements != "" {
		savepoint := fmt.Sprintf("s%d", depth)
		var refused bool
		var err error
		if answer, after, refused, err = k.send(ctx, savepoint, m.statements); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(k.path, "; "), err)
		}
		back := "rollback to savepoint " + savepoint + ";"
		defer func() { k.undo = back + "release savepoint " + savepoint + ";" }()
		depth++
		if refused && m.refused == nil {
			return fmt.Errorf("%s: refused", strings.Join(k.path, "; "))
		}
		if refused {
			k.undo = back
			m.refused(&w)
			return k.from(ctx, w, now, depth)
		}
	}
	broken := m.then(&w, answer)
	for _, property := range append(w.judge(after), broken) {
		if property != "" && k.matters(property) {
			return violation{property, strings.Join(k.path, "; ")}
		}
	}
	return k.from(ctx, w, after, depth)
}

// send runs the statements after a savepoint and returns the resulting rows. P4020 is a refusal.
func (k *walk) send(ctx context.Context, savepoint, statements string) (answer string, after rows, refused bool, err error) {
	message := k.undo + "savepoint " + savepoint + ";" + statements + ";" + rowsQuery
	k.undo = ""
	results, err := k.conn.Exec(ctx, message).ReadAll()
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == "P4020" {
		return "", after, true, nil
	}
	if err != nil {
		return "", after, false, err
	}
	var answers [][][]byte
	for _, result := range results {
		if len(result.FieldDescriptions) > 0 {
			answers = append(answers, append(result.Rows, nil)[0])
		}
	}
	last := answers[len(answers)-1]
	after.jobs, after.marked = string(last[0]), string(last[4]) == "t"
	_, err = fmt.Sscan(string(last[1])+" "+string(last[2])+" "+string(last[3]), &after.keys, &after.effects, &after.events)
	if len(answers) > 1 && answers[len(answers)-2] != nil {
		answer = string(answers[len(answers)-2][0])
	}
	return answer, after, false, err
}
