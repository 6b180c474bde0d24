package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl/dashboard"
)

const dashboardAddress = "127.0.0.1:8484"

type dashboardFlags struct {
	listen   string
	actor    string
	readOnly bool
	payloads bool
	json     *bool
}

func newDashboard() *cobra.Command {
	var f dashboardFlags
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show queues, jobs and the history of keys in a browser, and change them there",
		Long: `Serves the dashboard for one browser on this machine until Ctrl-C. It prints an address with a token: open it in the browser that
needs access. The token works once, and the session ends after 12 hours.

Actions write an audit row with your name and a reason, as the commands do. With --read-only nothing can be changed. Payloads are
shown only with --payloads.

To give a team access, mount the package github.com/pawl-go/pawl/dashboard in your own server, behind your login.`,
		Example: "  pawl dashboard\n  pawl dashboard --read-only --listen 127.0.0.1:0",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", dashboardAddress, "loopback address and port; port 0 takes a free one")
	flags.StringVar(&f.actor, "actor", "", "your name, for the audit record (default: $USER)")
	flags.BoolVar(&f.readOnly, "read-only", false, "change nothing")
	flags.BoolVar(&f.payloads, "payloads", false, "allow showing payloads")
	f.json = addJSONFlag(cmd)
	return cmd
}

func (f dashboardFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	config, err := databaseConfig(cmd)
	if err != nil {
		return err
	}
	// report problems before the browser opens
	if err := withSchema(cmd, func(context.Context, *pgx.Conn) error { return nil }); err != nil {
		return err
	}
	pool, err := poolOf(cmd.Context(), config)
	if err != nil {
		return explain(cmd, config, err)
	}
	defer pool.Close()
	login := dashboard.NewLogin(dashboard.User{Name: f.actor, MayChange: !f.readOnly, MaySeePayloads: f.payloads})
	c := dashboard.Config{Pool: pool, Authorize: login.Authorize, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
	if !f.readOnly {
		c.Operators = pool
	}
	board, err := dashboard.New(c)
	if err != nil {
		return err
	}
	return f.serve(cmd, board, login)
}

func (f *dashboardFlags) check(cmd *cobra.Command) error {
	f.actor = cmp.Or(f.actor, whoami())
	if f.actor == "" || len(f.actor) > 255 {
		return misused(cmd, "the actor is missing: $USER is not set, or longer than 255 octets", "pass --actor")
	}
	return loopbackAddress(cmd, f.listen, dashboardAddress, "for others, mount the package dashboard behind your login")
}

// loopbackAddress refuses a --listen that other machines could reach.
func loopbackAddress(cmd *cobra.Command, listen, example, otherwise string) error {
	address, err := netip.ParseAddrPort(listen)
	if err != nil || !address.Addr().IsLoopback() {
		return misused(cmd, fmt.Sprintf("--listen %s is not a loopback address with a port", listen), "as in: --listen "+example+"; "+otherwise)
	}
	return nil
}

func printLogin(cmd *cobra.Command, asJSON bool, login, url string) error {
	return printOne(cmd, asJSON, struct {
		URL   string `json:"url"`
		Login string `json:"login"` // works once
	}{url, login}, login)
}

// poolOf makes a small pool of connections with the given configuration.
func poolOf(ctx context.Context, config *pgx.ConnConfig) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	c.ConnConfig, c.MaxConns = config, 6 // four parallel reads, and actions
	return pgxpool.NewWithConfig(ctx, c)
}

func (f dashboardFlags) serve(cmd *cobra.Command, board http.Handler, login *dashboard.Login) error {
	socket, err := net.Listen("tcp", f.listen)
	if err != nil {
		return failed(cmd, err, "choose another port with --listen, as in --listen 127.0.0.1:0")
	}
	url := "http://" + socket.Addr().String() + login.Path()
	server := &http.Server{Handler: login.Mount(board), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	progress(cmd)("the dashboard is at " + url + "; Ctrl-C stops it. This address works once, in one browser:")
	if err = printLogin(cmd, *f.json, url+login.Query(), url); err == nil {
		select {
		case <-cmd.Context().Done():
			progress(cmd)("stopping")
		case err = <-ended:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 5*time.Second)
	defer cancel()
	if stopped := server.Shutdown(ctx); stopped != nil && !errors.Is(stopped, context.DeadlineExceeded) {
		err = errors.Join(err, stopped)
	}
	return err
}
