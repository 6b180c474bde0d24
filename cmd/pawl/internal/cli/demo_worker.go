package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
)

// newDemoWorker is the command that the demo starts for its workers. It is not for people.
func newDemoWorker() *cobra.Command {
	return &cobra.Command{
		Use:    demo.WorkerCommand,
		Short:  "A worker of the demo",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := demo.Work(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
			if errors.Is(err, demo.ErrByHand) {
				return misused(cmd, err.Error(), "run: pawl demo")
			}
			return err
		},
	}
}
