package bounds_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/doctor"
	"github.com/pawl-go/pawl/guard"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/ops"
	"github.com/pawl-go/pawl/outbox"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/schedule"
	"github.com/pawl-go/pawl/service"
	"github.com/pawl-go/pawl/step"
	"github.com/pawl-go/pawl/transport/webhook"
)

// A tried configuration is opened with each of its numbers negative.
type tried struct {
	config any // a value that open accepts
	open   func(t *testing.T, config any) error
	// signed holds why a field may be negative.
	signed map[string]string
}

// try returns a configuration and the function that checks it.
func try[C any](config C, open func(t *testing.T, c C) error, signed ...string) tried {
	all := map[string]string{}
	for i := 0; i+1 < len(signed); i += 2 {
		all[signed[i]] = signed[i+1]
	}
	return tried{config, func(t *testing.T, c any) error { return open(t, c.(C)) }, all}
}

var (
	intent  = pawl.Intent{Scope: "s", Key: "k", Fingerprint: pawl.FingerprintOf()}
	ignores = func(context.Context, pgx.Tx) (int, error) { return 0, nil }
	handles = func(context.Context, pgx.Tx, consumer.Message[[]byte]) error { return nil }
	batches = func(context.Context, pgx.Tx, []consumer.Message[[]byte]) error { return nil }
	many    = func(context.Context, []job.Task[[]byte]) []error { return nil }
	scheme  = webhook.Stripe(webhook.Secret{Name: "s", Value: "0123456789abcdef0123456789abcdef"})
	works   = func(context.Context, pgx.Tx, job.Task[[]byte]) error { return nil }
)

// negative returns the configuration with one number of -1.
func (c tried) negative(path []string) any {
	config := reflect.New(reflect.TypeOf(c.config)).Elem()
	config.Set(reflect.ValueOf(c.config))
	of := config
	for _, f := range path {
		of = of.FieldByName(f)
	}
	of.SetInt(-1)
	return config.Interface()
}

func verifier(t *testing.T) *webhook.Verifier {
	v, err := webhook.New(webhook.Config{Scheme: scheme, Key: webhook.KeyID()})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func started(t *testing.T, pool *pgxpool.Pool, add func(*service.App)) error {
	app, err := service.New(pool, service.Config{})
	if err != nil {
		t.Fatal(err)
	}
	add(app)
	return app.Run(t.Context())
}

func listed[T any](_ T, err error) error { return err }

// public holds the configurations of the core module.
func public(pool *pgxpool.Pool) map[string]tried {
	consume := func(h consumer.Handler) func(*testing.T, consumer.Config) error {
		return func(_ *testing.T, c consumer.Config) error {
			c.Name, c.Source = "c", &pawltest.Source{}
			if c.Handler = h; h == nil {
				c.Handler = consumer.HandleTx(handles)
			}
			_, err := consumer.New(pool, c)
			return err
		}
	}
	worker := func(c job.Config) error {
		_, err := job.NewWorker(pool, c)
		return err
	}
	handler := func(c job.Config) job.Config {
		c.Handlers = []job.Handler{job.HandleTx("k", works)}
		if c.Queues == nil {
			c.Queues = []job.Queue{{Name: "q"}}
		}
		return c
	}
	caught := func(open func()) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = &pawl.Error{Code: pawl.CodeArgumentInvalid, Err: fmt.Errorf("%v", p)}
			}
		}()
		open()
		return nil
	}
	return map[string]tried{
		"command.Options": try(command.Options{}, func(t *testing.T, o command.Options) error {
			_, err := command.Once(t.Context(), pool, intent, o, ignores)
			return err
		}, "Wait", "a call does not wait"),
		"command.LeaseOptions": try(command.LeaseOptions{}, func(t *testing.T, o command.LeaseOptions) error {
			_, _, err := command.Begin[int](t.Context(), pool, intent, o)
			return err
		}, "Wait", "a call does not wait"),
		"httpkey.Options": try(httpkey.Options{}, func(_ *testing.T, o httpkey.Options) error {
			return caught(func() {
				httpkey.Once(pool, func(*http.Request) (string, error) { return "t", nil }, o, func(http.ResponseWriter, *http.Request, pgx.Tx) error { return nil })
			})
		}),
		"httpkey.RetryingClient": try(httpkey.RetryingClient{}, func(t *testing.T, c httpkey.RetryingClient) error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.RoundTrip(r)
			return err
		}),
		"consumer.Config": try(consumer.Config{}, consume(nil), "MaxStored", "there is no bound", "MaxDead", "there is no bound"),
		"consumer.TxPolicy": try(consumer.TxPolicy{}, func(t *testing.T, p consumer.TxPolicy) error {
			return consume(consumer.HandleTx(handles).With(p))(t, consumer.Config{})
		}),
		"consumer.ManyTxPolicy": try(consumer.ManyTxPolicy{}, func(t *testing.T, p consumer.ManyTxPolicy) error {
			return consume(consumer.HandleManyTx(batches).With(p))(t, consumer.Config{})
		}),
		"consumer.SequenceGate": try(consumer.SequenceGate{Mode: consumer.GateStrict, Of: func(pawl.Delivery) (string, int64, error) { return "", 0, nil }}, func(t *testing.T, g consumer.SequenceGate) error {
			return consume(consumer.HandleTx(handles).With(consumer.TxPolicy{SequenceGate: &g}))(t, consumer.Config{})
		}),
		"doctor.Limits": try(doctor.Limits{}, func(t *testing.T, l doctor.Limits) error {
			_, err := doctor.Diagnose(t.Context(), pool, l)
			return err
		}),
		"guard.SweeperConfig": try(guard.SweeperConfig{}, func(t *testing.T, c guard.SweeperConfig) error {
			rows, err := guard.New(pool, guard.Table{Name: "orders"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = rows.Sweeper(c, func(context.Context, string) error { return nil })
			return err
		}, "Every", "Run makes no passes"),
		"job.Config": try(handler(job.Config{}), func(_ *testing.T, c job.Config) error { return worker(c) }),
		"job.Queue":  try(job.Queue{Name: "q"}, func(_ *testing.T, q job.Queue) error { return worker(handler(job.Config{Queues: []job.Queue{q}})) }),
		"job.Policy": try(job.Policy{}, func(_ *testing.T, p job.Policy) error {
			return worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleTx("k", works).With(p)}})
		}),
		"job.ManyPolicy": try(job.ManyPolicy{}, func(_ *testing.T, p job.ManyPolicy) error {
			return worker(job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.HandleMany("k", many).With(p)}})
		}),
		"webhook.Config": try(webhook.Config{Scheme: scheme, Key: webhook.KeyID()}, func(_ *testing.T, c webhook.Config) error {
			_, err := webhook.New(c)
			return err
		}),
		"webhook.ReceiverConfig": try(webhook.ReceiverConfig{}, func(t *testing.T, c webhook.ReceiverConfig) error {
			_, err := webhook.NewReceiver(verifier(t), c)
			return err
		}),
		"webhook.GitHubConfig": try(webhook.GitHubConfig{Hook: "repos/o/r/hooks/1", Token: func(context.Context) (string, error) { return "", nil }}, func(_ *testing.T, c webhook.GitHubConfig) error {
			_, err := webhook.NewGitHubDeliveries(c)
			return err
		}),
		"ops.Commands":      try(ops.Commands{}, func(t *testing.T, l ops.Commands) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Deliveries":    try(ops.Deliveries{}, func(t *testing.T, l ops.Deliveries) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Jobs":          try(ops.Jobs{}, func(t *testing.T, l ops.Jobs) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Lanes":         try(ops.Lanes{}, func(t *testing.T, l ops.Lanes) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Outbox":        try(ops.Outbox{}, func(t *testing.T, l ops.Outbox) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Queues":        try(ops.Queues{}, func(t *testing.T, l ops.Queues) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Schedules":     try(ops.Schedules{}, func(t *testing.T, l ops.Schedules) error { return listed(l.List(t.Context(), pool)) }),
		"ops.SequenceGates": try(ops.SequenceGates{}, func(t *testing.T, l ops.SequenceGates) error { return listed(l.List(t.Context(), pool)) }),
		"ops.Steps":         try(ops.Steps{}, func(t *testing.T, l ops.Steps) error { return listed(l.List(t.Context(), pool)) }),
		"ops.PurgeRule":     try(ops.PurgeRule{Table: ops.TableStep}, func(_ *testing.T, r ops.PurgeRule) error { return r.Check() }),
		"service.HTTPConfig": try(service.HTTPConfig{Address: "127.0.0.1:0", Handler: http.NotFoundHandler()}, func(t *testing.T, c service.HTTPConfig) error {
			return started(t, pool, func(a *service.App) { a.HTTP(c) })
		}),
		"service.Part": try(service.Part{Name: "p", Run: func(context.Context) error { return nil }}, func(t *testing.T, p service.Part) error {
			return started(t, pool, func(a *service.App) { a.Add(p) })
		}),
		"outbox.Config": try(outbox.Config{Sink: outbox.Func(func(context.Context, pawl.Message) error { return nil })}, func(_ *testing.T, c outbox.Config) error {
			_, err := outbox.NewRelay(pool, c)
			return err
		}),
		"schedule.Config": try(schedule.Config{}, func(_ *testing.T, c schedule.Config) error {
			_, err := schedule.NewKeeper(pool, c)
			return err
		}),
		"service.Config": try(service.Config{}, func(_ *testing.T, c service.Config) error {
			_, err := service.New(pool, c)
			return err
		}),
		"step.Step": try(step.Step{Name: "s", Recovery: step.AtMostOnce(), Request: "r"}, func(t *testing.T, s step.Step) error {
			_, err := step.Run(t.Context(), pool, job.Job{}, s, func(context.Context, step.Call) (int, error) { return 0, nil })
			return err
		}),
		"step.Reconciliation": try(step.Reconciliation{Providers: map[string]step.Probe{"p": func(context.Context, step.Call) (step.ProbeResult, any, error) { return "", nil, nil }}}, func(t *testing.T, r step.Reconciliation) error {
			_, err := step.Reconcile(t.Context(), pool, r)
			return err
		}),
	}
}

// A negative number of a configuration is refused with the name of its field, except where it has a
// meaning of its own. No database is asked before.
func TestPublic_RefusesNegatives(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for name, c := range public(pool) {
		signed := maps.Clone(c.signed)
		for _, path := range numbers(reflect.TypeOf(c.config), nil) {
			field := strings.Join(path, ".")
			t.Run(name+" "+field, func(t *testing.T) {
				t.Parallel()
				err := c.open(t, c.negative(path))
				refused := errors.Is(err, pawl.ErrArgumentInvalid) && strings.Contains(strings.ToLower(err.Error()), strings.ToLower(path[len(path)-1])) && strings.Contains(err.Error(), "-1")
				if _, may := c.signed[field]; may == refused {
					t.Errorf("%s is -1: %v", field, err)
				}
			})
			delete(signed, field)
		}
		for field := range signed {
			t.Errorf("%s has no number %s", name, field)
		}
	}
}

// Events, requests and schedules are checked when they are stored, also beside others.
func TestPublic_RequestsRefuseNegatives(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	request := job.Request{Queue: "q", Kind: "k", Payload: []byte("{}")}
	event := outbox.Event{Type: "t", AggregateType: "a", AggregateID: "1", Payload: []byte("{}")}
	for name, c := range map[string]tried{
		"job.Request": try(request, func(t *testing.T, r job.Request) error { return listed(job.Enqueue(t.Context(), pool, r)) }),
		"job.Request of several": try(request, func(t *testing.T, r job.Request) error {
			return listed(job.EnqueueMany(t.Context(), pool, []job.Request{request, r}))
		}),
		"outbox.Event of several": try(event, func(t *testing.T, e outbox.Event) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return listed(outbox.Append(t.Context(), tx, event, e)) })
		}),
		"outbox.Event": try(event, func(t *testing.T, e outbox.Event) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return listed(outbox.Append(t.Context(), tx, e)) })
		}),
		"schedule.Schedule": try(schedule.Schedule{Name: "s", Plan: schedule.Every(time.Hour), Queue: "q", Kind: "k"}, func(t *testing.T, s schedule.Schedule) error {
			return listed(schedule.Put(t.Context(), pool, s))
		}),
	} {
		if err := c.open(t, c.config); err != nil {
			t.Errorf("%s as it is: %v", name, err)
		}
		for _, path := range numbers(reflect.TypeOf(c.config), nil) {
			if err := c.open(t, c.negative(path)); !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "-") {
				t.Errorf("%s with %v of -1: %v", name, path, err)
			}
		}
	}
}

// numbers returns the paths of the exported numbers of a configuration, also in its structs.
func numbers(of reflect.Type, path []string) (all [][]string) {
	for i := range of.NumField() {
		f := of.Field(i)
		at := append(slices.Clone(path), f.Name)
		switch {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Int, f.Type.Kind() == reflect.Int64:
			// No enumeration.
			if f.Type.PkgPath() == "" || f.Type == reflect.TypeFor[time.Duration]() {
				all = append(all, at)
			}
		case f.Type.Kind() == reflect.Struct:
			all = append(all, numbers(f.Type, at)...)
		}
	}
	return all
}

// elsewhere holds the configurations that public lacks, with the reason.
var elsewhere = map[string]string{
	"consumer.Keep":            "a part of Config",
	"consumer.Policy":          "a part of TxPolicy",
	"consumer.TriggerPolicy":   "has the Timeout of a Policy, and is checked like it",
	"httpkey.Lease":            "a negative duration is below its least, and Leased panics",
	"job.Backoff":              "a part of a Config and of a Policy",
	"job.Defaults":             "a part of a Request",
	"job.Request":              "see TestPublic_RequestsRefuseNegatives",
	"ops.JobRef":               "a fence, which no row has",
	"ops.LaneRef":              "an id, which no row has",
	"ops.PurgeRule":            "see TestPublic_RequestsRefuseNegatives",
	"outbox.Event":             "see TestPublic_RequestsRefuseNegatives",
	"pawl.SourceInfo":          "a source returns it, and the consumer checks it",
	"pawl.Watching":            "Watch returns no error; below 1 it is the default",
	"pawltest.Source":          "for tests; the clock of the test",
	"transporttest.Broker":     "for tests",
	"webhook.ReconcilerConfig": "see TestNewReconciler_Refuses of package webhook",
}

// Each exported configuration of the core module is in public. A configuration is a struct with a
// number whose comment names its default.
func TestPublic_IsComplete(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	known, files := public(nil), token.NewFileSet()
	unused := maps.Clone(elsewhere)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, module := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && module == nil || slices.Contains([]string{"internal", "testdata", "schema", "docs"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range configurations(file) {
			_, why := elsewhere[name]
			delete(unused, name)
			if _, ok := known[name]; !ok && !why {
				t.Errorf("%s: %s has a number with a default: add it to public, so that a negative one is refused", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range unused {
		t.Errorf("there is no configuration %s", name)
	}
}

// configurations returns the names, with the package, of the structs of a file with a number whose
// comment names its default.
func configurations(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		of, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		if slices.ContainsFunc(of.Fields.List, func(f *ast.Field) bool {
			return slices.Contains([]string{"int", "int64", "time.Duration"}, typeName(f.Type)) &&
				(strings.Contains(f.Doc.Text(), "efault") || strings.Contains(f.Comment.Text(), "efault"))
		}) {
			names = append(names, file.Name.Name+"."+spec.Name.Name)
		}
		return true
	})
	return names
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}
