package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

func newWebhookSign() *cobra.Command {
	var f deliveryFlags
	cmd := &cobra.Command{
		Use:   "sign --scheme NAME",
		Short: "Print the headers that sign a body",
		Long: `Prints the headers with which the sender would deliver this body, one a line, as curl -H @- reads them.

` + schemeHelp,
		Example: `  export PAWL_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  echo -n '{"type":"ping"}' | pawl webhook sign --scheme standard --id msg_1
  pawl webhook sign --scheme stripe --body event.json | curl -H @- --data-binary @event.json http://localhost:8080/stripe`,
		Args: noArgs,
	}
	f.add(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.delivery(cmd)
		if err != nil {
			return err
		}
		h, err := d.sign()
		if err != nil {
			return err
		}
		signed := signedJSON{Headers: map[string]string{}}
		for name := range h {
			signed.Headers[name] = h.Get(name)
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), signed)
		}
		for _, name := range slices.Sorted(maps.Keys(signed.Headers)) {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, signed.Headers[name]); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

type signedJSON struct {
	Headers map[string]string `json:"headers"`
}
