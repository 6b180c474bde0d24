package cli

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/cmd/pawl/internal/lab"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

type watchFlags struct {
	watch  bool
	rate   float64
	listen string
}

func (f watchFlags) run(cmd *cobra.Command, workers int, asJSON bool) error {
	alone := append(slices.DeleteFunc(slices.Clone(playFlags), func(name string) bool { return name == "workers" }), "lease", "keep", "timeout", urlFlag)
	if n := slices.IndexFunc(alone, func(name string) bool { return cmd.Flags().Changed(name) }); n >= 0 {
		return misused(cmd, "--"+alone[n]+" does not go with --watch", "of the other flags it takes --workers, --rate, --listen and --json; see: pawl demo --help")
	}
	if err := loopbackAddress(cmd, f.listen, dashboardAddress, "the lab is for one browser on this machine"); err != nil {
		return err
	}
	say := progress(cmd)
	o := lab.Options{Workers: workers, Rate: f.rate, Listen: f.listen, Actor: cmp.Or(whoami(), "you"), Note: say}
	if err := o.Validate(); err != nil {
		return misused(cmd, err.Error(), "see: pawl demo --help")
	}
	var err error
	if o.Executable, err = os.Executable(); err != nil {
		return failed(cmd, err, "")
	}
	r, err := lab.Run(cmd.Context(), o, func(login, url string) error {
		say("the crash lab is at " + url + "; Ctrl-C ends it. This address works once, in one browser:")
		return printLogin(cmd, asJSON, login, url)
	})
	if errors.Is(err, postgres.ErrNotFound) {
		return whyNotStarted(cmd, err, "install PostgreSQL")
	}
	if err != nil {
		return failed(cmd, err, "run it again; choose another port with --listen if that one is taken")
	}
	err = printOne(cmd, asJSON, r, r.Summary())
	if err == nil && !r.OK() {
		return failed(cmd, errors.New("the promise was broken: "+r.Summary()), "please report it, with the faults that you pressed")
	}
	return err
}
