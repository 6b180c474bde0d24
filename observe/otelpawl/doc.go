// Package otelpawl exports Pawl's metrics to OpenTelemetry and creates spans around handlers. Use
// [Events] for metrics of this process, [Database] for gauges of the database, and [Tracing] for
// spans:
//
//	hooks, err := otelpawl.Events(nil, observe.EventOptions{}) // nil: the global provider
//	tracing := otelpawl.NewTracing(nil)
//	worker, err := job.NewWorker(pool, job.Config{
//		Handlers: handlers, Hooks: pawl.Join(hooks, pawl.LogTo(nil)),
//		Middleware: []job.Middleware{tracing.Job()}})
//	c, err := consumer.New(pool, consumer.Config{
//		Name: "orders", Source: source, Handler: handler,
//		Middleware: []consumer.Middleware{tracing.From(source).Consumer()}})
//
// One trace goes through messages, jobs and calls:
//
//	sender's span ─▶ traceparent of the message
//	                  └─▶ span of the delivery's handler ─▶ headers of the job
//	                                                         └─▶ span of the job's handler
//	                                                              └─▶ traceparent of a call
//
// In a handler, the context has the span, as usual in OpenTelemetry. It also has the span as a
// [pawl.Trace], which jobs, events and messages written with the context carry. Outside of
// handlers, [Inject] adds it. Pawl itself carries traces in the W3C Trace Context headers, with or
// without this package.
//
// A span covers the handler, but not the claim before it or the COMMIT after it. Metrics and logs
// tell the outcome.
package otelpawl
