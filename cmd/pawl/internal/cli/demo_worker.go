package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/demo"
	"github.com/pawl-go/pawl/cmd/pawl/internal/lab"
)

func newDemoWorker() *cobra.Command {
	return newWorker(demo.WorkerCommand, "A worker of the demo", "run: pawl demo", demo.Work, demo.ErrByHand)
}

func newLabWorker() *cobra.Command {
	return newWorker(lab.WorkerCommand, "A worker of the crash lab", "run: pawl demo --watch", lab.Work, lab.ErrByHand)
}

// newWorker makes the command of a worker process. It is not for people: if one runs it, work
// returns byHand.
func newWorker(name, short, next string, work func(context.Context, io.Reader, io.Writer) error, byHand error) *cobra.Command {
	return &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := work(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
			if errors.Is(err, byHand) {
				return misused(cmd, err.Error(), next)
			}
			return err
		},
	}
}
