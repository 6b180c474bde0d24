// Package otelpawl gives OpenTelemetry what Pawl measures, and puts spans around handlers.
//
//	sender's span ─▶ traceparent of the message ─▶ span of the delivery's handler
//	                                                   └─▶ headers of the job ─▶ span of the job's handler
//	                                                                                └─▶ traceparent of a call
//
// Within a handler the span is in the context, as everywhere in OpenTelemetry. For what Pawl writes with the context, a job, an event or a
// message, the span is there as a [pawl.Trace] as well; outside of handlers [Inject] puts it there. Pawl itself carries the trace, as the
// headers of W3C Trace Context, whether or not this package is used.
//
// A span is the handler's: the claim before it and the COMMIT after it are not in it. What became of the work is in the metrics and logs.
package otelpawl
