package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// againWarning says what asking again can cause.
const againWarning = "no key ties the new call to the old ones: if the provider took one of them after all, it happens twice"

func newEffectsAgain() *cobra.Command {
	var by ops.By
	var key string
	cmd := &cobra.Command{
		Use:   "again SCOPE KEY STEP --fence N --reason TEXT",
		Short: "Have a step that was refused for good called again, under a new key",
		Long: `Has a step called again that its provider refused for good, as when a card was declined and the customer has another one. The refusal is
stored, and the provider repeats it for the old key, so pawl dlq retry alone dies again at once.

The step is called under a new key at the next attempt of its job: retry the job afterwards. No key ties the new call to the old ones. If the
provider took one of the old calls after all, it happens twice: look at its dashboard for the old key first.

--fence is what effects show printed when you looked. If another call has begun since, nothing changes. Who and why go to pawl.audit.`,
		Example: "  pawl effects again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --dry-run\n" +
			"  pawl effects again job/pay 17@1795285193170792 charge --fence 41 --reason 'the customer has a new card' --yes",
	}
	addByFlags(cmd, &by)
	addFenceFlag(cmd, &by)
	flags := cmd.Flags()
	flags.StringVar(&key, "key", "", "the new key (default: a random UUID)")
	dryRun := flags.Bool("dry-run", false, "say what would be done, and do nothing")
	yes := flags.Bool("yes", false, "do not ask; required where nobody can be asked")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 3 {
			return misused(cmd, fmt.Sprintf("it takes a scope, a key and a step, not %s", plural(len(args), "argument", "arguments")), "as in: "+cmd.UseLine())
		}
		if err := checkBy(cmd, &by); err != nil {
			return err
		}
		if err := checkFence(cmd, by, "pawl effects show "+quoted(args[0])+" "+quoted(args[1])+" "+quoted(args[2])); err != nil {
			return err
		}
		id := ops.EffectID{Scope: args[0], Key: args[1], Step: args[2]}
		what := fmt.Sprintf("have step %s of %s called again under a new key", id.Step, id.Key)
		ask := !*yes && !*dryRun
		if ask && !mayAsk(cmd) {
			return misused(cmd, fmt.Sprintf("this would %s: %s", what, againWarning), "add --yes, or --dry-run")
		}
		return withSchema(cmd, func(ctx context.Context, conn *pgx.Conn) error {
			if ask && !agreed(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question(conn, what, againWarning)) {
				return failed(cmd, errNotAgreed, "answer y, or add --yes")
			}
			r, err := ops.AskAgain(ctx, conn, id, key, *dryRun, by)
			var pg *pgconn.PgError
			if pawl.CodeOf(err) == "55P03" && errors.As(err, &pg) {
				return failed(cmd, errors.New("an open transaction has its row locked"), "ask again when that has ended")
			}
			if err != nil {
				return err
			}
			return printAgain(cmd, id, r, *asJSON)
		})
	}
	return cmd
}

func printAgain(cmd *cobra.Command, id ops.EffectID, r ops.AgainResult, asJSON bool) (err error) {
	next := r.Hint
	if r.Job != 0 {
		next = fmt.Sprintf("pawl dlq retry %d --reason …", r.Job)
	}
	done := r.Outcome == ops.Renewed || r.Outcome == ops.WouldRenew
	switch {
	case asJSON:
		err = printJSON(cmd.OutOrStdout(), againJSON{string(r.Outcome), given(string(r.Status)), given(r.ProviderKey), given(r.Job), given(r.Fence),
			given(r.RetryAfter.Milliseconds()), given(r.Hint)})
	case r.Outcome == ops.WouldRenew:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "would have step %s called under a new key, after %s; %s\nthen: %s\n", visible(id.Step),
			plural(r.Calls, "call", "calls"), againWarning, next)
	case done:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "step %s is called under the key %s at the next attempt\nnext: %s\n", visible(id.Step), visible(r.ProviderKey), next)
	}
	if err != nil || done {
		return err
	}
	why := fmt.Sprintf("there is no step %s of %s in scope %s", id.Step, id.Key, id.Scope)
	switch r.Outcome {
	case ops.Refused:
		why = fmt.Sprintf("step %s is %s", id.Step, r.Status)
	case ops.Moved:
		why = fmt.Sprintf("step %s has been called again since you looked", id.Step)
	case ops.Early:
		why = fmt.Sprintf("an earlier call of step %s may still be sent in the next %v", id.Step, r.RetryAfter.Round(time.Second))
	}
	return failed(cmd, errors.New(why), r.Hint)
}

type againJSON struct {
	Outcome      string  `json:"outcome"`      // renewed, would_renew; refused, moved, early, absent
	Status       *string `json:"status"`       // if nothing changed
	ProviderKey  *string `json:"provider_key"` // from now on
	Job          *int64  `json:"job"`          // to retry
	Fence        *int64  `json:"fence"`        // now, if it has moved
	RetryAfterMS *int64  `json:"retry_after_ms"`
	Hint         *string `json:"hint"`
}
