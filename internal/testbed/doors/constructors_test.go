package doors_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/step"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A constructor refuses a nil argument, so it does not cause a panic at the first delivery or
// request.
func TestConstructors_RefuseNil(t *testing.T) {
	t.Parallel()
	ctx, intent := t.Context(), pawl.Intent{Scope: "s", Key: "k", Fingerprint: pawl.FingerprintOf()}
	probe := func(context.Context, step.Call) (step.ProbeResult, any, error) { return step.CannotTell, nil, nil }
	for name, err := range map[string]error{
		"consumer.New":          second(consumer.New(nil, consumer.Config{Name: "c"})),
		"job.NewWorker":         second(job.NewWorker(nil, job.Config{})),
		"outbox.NewRelay":       second(outbox.NewRelay(nil, outbox.Config{})),
		"guard.New":             second(guard.New(nil, guard.Table{})),
		"webhook.New":           second(webhook.New(webhook.Config{})),
		"webhook.NewReceiver":   second(webhook.NewReceiver(nil, webhook.ReceiverConfig{})),
		"webhook.NewReconciler": second(webhook.NewReconciler(webhook.ReconcilerConfig{})),
		"command.Once":          second(command.Once(ctx, nil, intent, command.Options{}, func(context.Context, pgx.Tx) (int, error) { return 0, nil })),
		"command.OnceSQL":       second(command.OnceSQL(ctx, nil, intent, command.Options{}, func(context.Context, *sql.Tx) (int, error) { return 0, nil })),
		"command.Leased":        second(command.Leased(ctx, nil, intent, command.LeaseOptions{}, func(context.Context, *command.Attempt[int]) error { return nil })),
		"command.Leased, no fn": second(command.Leased[int](ctx, new(pgxpool.Pool), intent, command.LeaseOptions{}, nil)),
		"command.Begin":         third(command.Begin[int](ctx, nil, intent, command.LeaseOptions{})),
		"schedule.NewKeeper":    second(schedule.NewKeeper(nil, schedule.Config{})),
		"step.Reconcile":        second(step.Reconcile(ctx, nil, step.Reconciliation{Providers: map[string]step.Probe{"p": probe}})),
		"step.Reconcile, nil":   second(step.Reconcile(ctx, new(pgxpool.Pool), step.Reconciliation{Providers: map[string]step.Probe{"p": nil}})),
		"step.Run":              second(step.Run(ctx, nil, nil, step.Step{Name: "s", Recovery: step.AtMostOnce()}, func(context.Context, step.Call) (int, error) { return 0, nil })),
	} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pool := pawltest.DB(t)
	type task = job.Task[[]byte]
	for name, h := range map[string]job.Handler{
		"Handle": job.Handle[[]byte]("k", nil), "HandleMany": job.HandleMany[[]byte]("k", nil),
		"HandleTx": job.HandleTx[[]byte]("k", nil), "HandleManyTx": job.HandleManyTx[[]byte]("k", nil),
		"HandleSQL": job.HandleSQL[[]byte]("k", nil), "HandleManySQL": job.HandleManySQL[[]byte]("k", nil),
		"HandleThenTx, call":    job.HandleThenTx(octets, nil, func(context.Context, pgx.Tx, task, int) error { return nil }),
		"HandleThenTx, commit":  job.HandleThenTx(octets, func(context.Context, task) (int, error) { return 0, nil }, nil),
		"HandleThenSQL, call":   job.HandleThenSQL(octets, nil, func(context.Context, *sql.Tx, task, int) error { return nil }),
		"HandleThenSQL, commit": job.HandleThenSQL(octets, func(context.Context, task) (int, error) { return 0, nil }, nil),
		"Definition":            octets.HandleTx(nil),
	} {
		_, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{h}})
		if !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	tenant := func(*http.Request) (string, error) { return "t", nil }
	for name, make := range map[string]func(){
		"httpkey.Once":    func() { httpkey.Once(nil, nil, httpkey.Options{}, nil) },
		"httpkey.OnceSQL": func() { httpkey.OnceSQL(nil, tenant, httpkey.Options{}, nil) },
		"httpkey.Leased":  func() { httpkey.Leased(nil, tenant, httpkey.Lease{}, httpkey.Options{}, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s takes nil", name)
				}
			}()
			make()
		}()
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }
