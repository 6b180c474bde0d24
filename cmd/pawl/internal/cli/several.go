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

// locked is the outcome for a row that an open transaction has locked. It concerns that row only,
// so it is a result, not an error.
const locked ops.Outcome = "locked"

// several runs a verb on each named thing, each in its own transaction.
type several[K any] struct {
	*change
	name   string // name of the key in JSON: "key"; empty: the result has its own
	asked  []K
	text   func(K, ops.Result) string // line about a change
	miss   func(K, ops.Result) *miss  // reason why nothing changed; nil if that is expected
	footer func(io.Writer)            // printed after the lines; may be nil
}

// run calls do for each thing and prints all results, even if an error stops it.
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

// named is the JSON of a result, with the key of its thing first.
func named(name string, key any, r ops.Result) json.RawMessage {
	if name == "" {
		only, _ := json.Marshal(r)
		return only
	}
	first, _ := json.Marshal(map[string]any{name: key}) // a text or a number cannot fail
	rest, _ := json.Marshal(r)
	return json.RawMessage(string(first[:len(first)-1]) + "," + string(rest[1:]))
}

// hintOf returns the server's hint about a lock.
func hintOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Hint != "" {
		return pg.Hint
	}
	return "an open transaction has it; ask again when that has ended"
}

// A miss is a thing that was not changed: why, and the next step.
type miss struct{ why, next string }

// missed summarises in one line the things that were not changed. It returns nil if there are none.
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
