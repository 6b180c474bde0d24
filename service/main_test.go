package service_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/service"
)

// childEnv marks a process that runs [TestServiceProcess] as a program.
const childEnv = "PAWL_TEST_SERVICE"

// TestServiceProcess is the program that other tests start.
func TestServiceProcess(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return
	}
	service.Main(func(ctx context.Context) error {
		pool, cfg, err := service.FromEnv(ctx)
		if err != nil {
			return err
		}
		app, err := service.New(pool, cfg)
		if err != nil {
			return err
		}
		app.Worker(job.Config{Queues: []job.Queue{{Name: "q", Concurrency: 3}}, Timeout: time.Minute, Handlers: []job.Handler{
			job.HandleTx("slow", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error {
				if err := insert(ctx, tx, "effect", "slow"); err != nil {
					return err
				}
				<-ctx.Done() // longer than any stop
				return ctx.Err()
			}),
			job.HandleTx("quick", func(ctx context.Context, tx pgx.Tx, _ job.Task[[]byte]) error {
				patience.Elapse(500 * time.Millisecond) // shorter than a stop
				return insert(context.WithoutCancel(ctx), tx, "effect", "quick")
			}),
			job.Handle("deaf", func(context.Context, job.Task[[]byte]) error { select {} }),
		}})
		app.Consumer(consumer.Config{Name: "orders", Source: &pawltest.Source{}, Handler: consumer.HandleTx(ignoreDelivery)})
		return app.Run(ctx)
	})
	os.Exit(0)
}

// A program is a running process of TestServiceProcess.
type program struct {
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan error
}

func (b *bed) start(env ...string) *program {
	b.Helper()
	p := &program{cmd: exec.Command(os.Args[0], "-test.run=^TestServiceProcess$"), said: &bytes.Buffer{}, ended: make(chan error, 1)}
	p.cmd.Env = append(append(os.Environ(), childEnv+"=1", "DATABASE_URL="+b.url), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	b.must(p.cmd.Start())
	b.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

func (b *bed) awaitEnd(p *program) error {
	b.Helper()
	return patience.Receive(b, "the process ends", p.ended)
}

// A second signal kills the process. An error ends it with code 1 and the next step.
func TestMain_SecondSignalAndErrors(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table effect (v text)")
	p := b.start()
	b.until("the program works", func() bool { return b.count("select count(*) from pawl.worker") == 2 })
	_, err := job.Enqueue(t.Context(), b.eyes, job.Request{Queue: "q", Kind: "slow", Payload: []byte("1")})
	b.must(err)
	b.until("the work is in hand", func() bool { return b.count("select count(*) from pawl.job where status = 'processing'") == 1 })
	b.must(p.cmd.Process.Signal(syscall.SIGTERM))
	b.until("it has heard the first: its consumer has left", func() bool { return b.count("select count(*) from pawl.worker") == 1 })
	b.must(p.cmd.Process.Signal(syscall.SIGTERM))
	err = b.awaitEnd(p)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("%v\n%s", err, p.said)
	}

	p = b.start("PAWL_MAX_CONNS=3")
	err = b.awaitEnd(p)
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.said.String(), "pool_max_conns=") {
		t.Errorf("%v\n%s", err, p.said)
	}
}
