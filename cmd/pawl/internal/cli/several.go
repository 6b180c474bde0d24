package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/ops"
)

// locked is the outcome of a thing that an open transaction has. It concerns that one only, so it is an answer here.
const locked ops.Outcome = "locked"

// several is a verb about things that were named, each in a transaction of its own.
type several[K any] struct {
	*change
	name   string // of the thing in JSON: "key"; empty: the result names it
	asked  []K
	text   func(K, ops.Result) string // the line about a change
	miss   func(K, ops.Result) *miss  // why nothing changed; nil: that is as it should be
	footer func(io.Writer)            // below the lines; nil: nothing
}

// run goes through the things and tells what became of each, also if it has to stop on the way.
func (s several[K]) run(cmd *cobra.Command, do func(K) (ops.Result, error)) error {
	var misses []miss
	var lines strings.Builder
	results := []json.RawMessage{}
	stopped := func() error {
		for _, key := range s.asked {
			r, err := do(key)
			if isLocked(err) {
				r.Outcome, r.DryRun, r.Hint, err = locked, s.dryRun, hintOf(err), nil
			}
			if err != nil {
				return err
			}
			results = append(results, named(s.name, key, r))
			if r.Changed() && r.Outcome != locked {
				fmt.Fprintln(&lines, s.note()+s.text(key, r))
			} else if m := s.miss(key, r); m != nil {
				misses = append(misses, *m)
			}
		}
		return nil
	}()
	if err := s.print(cmd.OutOrStdout(), results, lines.String()); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	return missed(cmd, len(s.asked), misses)
}

func (s several[K]) print(w io.Writer, results []json.RawMessage, lines string) error {
	if *s.json {
		return printJSON(w, map[string]any{"results": results})
	}
	_, err := io.WriteString(w, lines)
	if err == nil && s.footer != nil {
		s.footer(w)
	}
	return err
}

// named is a result in JSON with the name of what it is about.
func named(name string, key any, r ops.Result) json.RawMessage {
	if name == "" {
		only, _ := json.Marshal(r)
		return only
	}
	first, _ := json.Marshal(map[string]any{name: key}) // a text or a number
	rest, _ := json.Marshal(r)
	return json.RawMessage(string(first[:len(first)-1]) + "," + string(rest[1:]))
}

// hintOf is what the server says about a lock.
func hintOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Hint != "" {
		return pg.Hint
	}
	return "an open transaction has it; ask again when that has ended"
}

// A miss is a thing that a command could not serve.
type miss struct{ why, next string }

// missed says in one line what is left of several things; nil if nothing is.
func missed(cmd *cobra.Command, asked int, misses []miss) error {
	const most = 5
	if len(misses) == 0 {
		return nil
	}
	var whys, nexts []string
	for i, m := range misses {
		if i == most {
			whys = append(whys, fmt.Sprintf("and %d more", len(misses)-most))
			break
		}
		whys = append(whys, m.why)
		if m.next != "" && !slices.Contains(nexts, m.next) {
			nexts = append(nexts, m.next)
		}
	}
	what := strings.Join(whys, ", ")
	if asked > 1 {
		what = fmt.Sprintf("not done for %d of %d: %s", len(misses), asked, what)
	}
	return failed(cmd, errors.New(what), strings.Join(nexts, "; "))
}
