package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/adopt"
	"github.com/pawl-go/pawl/internal/text"
)

// adoptSteps are the steps, with what a person agrees to. An empty one changes nothing.
var adoptSteps = []struct{ name, does string }{
	{"shadow", "make the functions and the table of the shadow"},
	{"backfill", "copy the keys of the table into the inbox"},
	{"switch", ""},
	{"remove", "drop what the shadow needed; no old build may still call it"},
	{"back", "copy the keys of the inbox into the table; stop the processes of step 4 first"},
}

// An adoption is the command line of pawl adopt.
type adoption struct {
	choice        adopt.Choice
	scope, step   string
	yes, rehearse bool
	json          *bool
}

func newAdopt() *cobra.Command {
	var a adoption
	cmd := &cobra.Command{
		Use:   "adopt TABLE --consumer NAME",
		Short: "Move a table of processed messages to the inbox: plan, rehearsal on a copy, and steps",
		Args:  takes(1),
		Long: wrap(`Reads a table of processed messages that you wrote by hand, and prints what it found and the plan of docs/guides/adopting.md with the SQL for this table. Without --step or --rehearse it only reads.`,
			`--rehearse plays the plan on a copy of at most 1000 rows. Consumers of both kinds get each message several times, at once, and lose connections before and after COMMIT. It counts the effects: lost or doubled ones fail the command. It writes only to a schema and under a consumer of its own (adopt_rehearsal), and removes both.`,
			`  shadow     makes the functions that the old consumer calls
  backfill   copies the keys whose payload the table has, 1000 rows a transaction
  switch     checks that you can deploy the new consumer; it changes nothing
  remove     checks that the table is not needed any more, and drops the functions; it never drops your table
  back       copies the keys back, if you must go back after remove`,
			`Each step can be run again, also after it was killed or lost its connection. A step that comes too early is refused.`),
		Example: `  pawl adopt processed_messages --consumer payments --payload body
  pawl adopt processed_messages --consumer payments --payload body --rehearse
  pawl adopt processed_messages --consumer payments --payload body --step shadow --yes
  pawl adopt billing.inbox --consumer invoices --key event_id --scope handler=invoices --time seen_at`,
	}
	flags := cmd.Flags()
	flags.StringVar(&a.choice.Consumer, "consumer", "", "name of the consumer that takes over; required")
	flags.StringVar(&a.choice.Key, "key", "", "column of the message's key (default: that of the unique index)")
	flags.StringVar(&a.choice.Time, "time", "", "column of the time of processing (default: the only timestamp)")
	flags.StringVar(&a.choice.Payload, "payload", "", "column with the message's octets; without it there is no backfill")
	flags.StringVar(&a.scope, "scope", "", "COLUMN=VALUE: second column of the unique index, and its value for this consumer")
	flags.StringVar(&a.step, "step", "", "run a step: shadow, backfill, switch, remove, back")
	flags.BoolVar(&a.rehearse, "rehearse", false, "play all steps on a copy, and count lost and doubled effects")
	flags.BoolVar(&a.yes, "yes", false, "do not ask; required without a terminal")
	a.json = addJSONFlag(cmd)
	cmd.RunE = a.run
	return cmd
}

func (a *adoption) run(cmd *cobra.Command, args []string) error {
	a.choice.Table = args[0]
	if err := a.check(cmd); err != nil {
		return err
	}
	return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		err := a.do(ctx, cmd, conn)
		if r := adopt.IsRefusal(err); r != nil {
			return failed(cmd, r, r.Next)
		}
		if ctx.Err() != nil {
			return err
		}
		var pg *pgconn.PgError
		var usage *usageError
		switch {
		case errors.As(err, &usage):
		case errors.As(err, &pg) && pg.Code == "42501":
			return failed(cmd, fmt.Errorf("user %s: %s", pgx.Identifier{conn.Config().User}.Sanitize(), pg.Message),
				"run it as the owner of the table, with pawl_app and create on its schema; a rehearsal needs create on the database. Or let that user run the SQL of the plan")
		case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42"):
			// a name that cannot be parsed, or a table that has changed under the command
			return failed(cmd, errors.New(pg.Message), "correct the name of the table, or run it again: it may have changed")
		case pg == nil && pawl.Unreachable(err):
			return failed(cmd, fmt.Errorf("the connection to %s broke", addressOf(conn.Config())), "run it again: a step goes on where it was, and no key is copied twice")
		}
		return err
	})
}

// check refuses an invalid command line before it connects.
func (a *adoption) check(cmd *cobra.Command) error {
	known := slices.IndexFunc(adoptSteps, func(s struct{ name, does string }) bool { return s.name == a.step })
	column, value, hasValue := strings.Cut(a.scope, "=")
	a.choice.Scope, a.choice.ScopeValue = column, value
	switch c := a.choice.Consumer; {
	case c == "":
		return misused(cmd, "the consumer is missing", "pass --consumer with the Name of its Config, as in: "+cmd.UseLine())
	case len(c) > 255 || !utf8.ValidString(c) || strings.ContainsRune(c, 0):
		return misused(cmd, "the consumer's name must be text of at most 255 octets", "pass the Name of its Config")
	case a.step != "" && known < 0:
		return misused(cmd, fmt.Sprintf("there is no step %q", a.step), "the steps are shadow, backfill, switch, remove, back")
	case a.step != "" && a.rehearse:
		return misused(cmd, "--rehearse plays all steps, and --step runs one", "pass one of them")
	case a.scope != "" && (!hasValue || column == ""):
		return misused(cmd, "--scope "+a.scope+" has no value", "as in: --scope handler=invoices")
	case a.step == "" || adoptSteps[known].does == "" || a.yes || isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()):
		return nil
	}
	return misused(cmd, "this would "+adoptSteps[known].does, "add --yes, or leave --step out to see the plan")
}

func (a *adoption) do(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn) error {
	t, err := adopt.Find(ctx, conn, a.choice)
	switch {
	case err != nil:
		return err
	case a.rehearse:
		return a.prove(ctx, cmd, conn, t)
	case a.step != "":
		return a.take(ctx, cmd, conn, t)
	case *a.json:
		return printJSON(cmd.OutOrStdout(), struct {
			*adopt.Table
			Plan []adopt.Step `json:"plan"`
		}{t, t.Plan()})
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), planText(t))
	return err
}

// take runs a step.
func (a *adoption) take(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, t *adopt.Table) error {
	does := adoptSteps[slices.IndexFunc(adoptSteps, func(s struct{ name, does string }) bool { return s.name == a.step })].does
	if does != "" && !a.yes {
		cfg := conn.Config()
		question := fmt.Sprintf("%s (%s, database %s on %s)? [y/N] ", does, t.Name, pgx.Identifier{cfg.Database}.Sanitize(), addressOf(cfg))
		if !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question) {
			return failed(cmd, errors.New("not confirmed; nothing changed"), "answer y, or add --yes")
		}
	}
	r, err := t.Run(ctx, conn, a.step, seconds(func(r adopt.Result) {
		progress(cmd)(fmt.Sprintf("%d keys copied, %d known so far", r.Copied, r.Known))
	}))
	if err != nil {
		return err
	}
	if *a.json {
		return printJSON(cmd.OutOrStdout(), r)
	}
	var out sheet
	out.title("%s of %s for consumer %s", a.step, t.Name, t.Consumer)
	switch a.step {
	case "backfill":
		out.field("copied", "%d keys; %d were known, %d with another payload", r.Copied, r.Known, r.Differ)
		out.field("left", "%s that Pawl does not know", text.Plural(r.Left, "row", "rows"))
	case "switch":
		out.field("shadow", "%d differences, none of which needs an answer", r.Differences)
		out.field("left", "%s that Pawl does not know", text.Plural(r.Left, "row", "rows"))
	case "back":
		out.field("copied", "%d keys", r.Copied)
		out.field("stored", "%d deliveries that the consumer has not finished", r.Stored)
	}
	out.field("next", "%s", r.Next)
	_, err = fmt.Fprint(cmd.OutOrStdout(), out.String())
	return err
}

// prove runs the rehearsal. It fails if an effect is lost or doubled.
func (a *adoption) prove(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, t *adopt.Table) error {
	p, err := t.Rehearse(ctx, conn, rand.Uint64(), progress(cmd))
	if err != nil {
		return err
	}
	if *a.json {
		err = printJSON(cmd.OutOrStdout(), p)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d messages, %d deliveries, %d connections cut: %d lost, %d doubled\n", p.Messages, p.Deliveries, p.Deaths, p.Lost, p.Doubled)
	}
	if err == nil && p.Lost+p.Doubled > 0 {
		err = failed(cmd, fmt.Errorf("%d effects were lost and %d doubled, for instance of %s", p.Lost, p.Doubled, strings.Join(p.Examples, ", ")), "do not adopt this table: report it with the plan")
	}
	return err
}

func planText(t *adopt.Table) string {
	var out sheet
	out.title("%s, to be taken over by consumer %s", t.Name, t.Consumer)
	out.field("key", "%s %s, unique by %s", t.Key.Name, t.Key.Type, t.Index)
	for _, c := range []struct {
		name   string
		column *adopt.Column
	}{{"scope", t.Scope}, {"time", t.Time}, {"payload", t.Payload}} {
		if c.column != nil {
			out.field(c.name, "%s %s", c.column.Name, c.column.Type)
		}
	}
	if t.Rows.More {
		out.field("rows", "about %d; the first %d were read, and %d of them are of the last %d days", t.Rows.About, t.Rows.Read-1, t.Rows.Recent, t.Days)
	} else {
		out.field("rows", "%d, %d of them of the last %d days", t.Rows.Read, t.Rows.Recent, t.Days)
	}
	if t.Rows.Oldest != nil && t.Rows.Newest != nil {
		out.field("times", "%s to %s", t.Rows.Oldest.UTC().Format(time.RFC3339), t.Rows.Newest.UTC().Format(time.RFC3339))
	}
	for _, n := range t.Notes {
		out.field("note", "%s", n)
	}
	if other := notAConsumer(t.Consumer); other != "" {
		out.field("note", "%s: pass the Name of its Config", other)
	}
	for i, s := range t.Plan() {
		number := fmt.Sprint(i+1) + " "
		if s.Name == "back" {
			number = ""
		}
		fmt.Fprintln(&out)
		out.title("%s%s", number, s.Name)
		out.field("does", "%s", s.Does)
		out.field("locks", "%s", s.Locks)
		out.field("takes", "%s", s.Takes)
		out.field("back", "%s", s.Back)
		out.title("")
		for line := range strings.Lines(s.SQL) {
			fmt.Fprintln(&out, strings.TrimRight("    "+text.Visible(strings.TrimSuffix(line, "\n")), " "))
		}
	}
	return out.String()
}
