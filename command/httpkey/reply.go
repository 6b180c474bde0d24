package httpkey

import (
	"context"
	"errors"
	"net/http"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/callback"
	"github.com/pawl-go/pawl/internal/fault"
)

// reply sends the result of the command.
//
// send: a crash before it costs the caller one retry, which is answered from the row.
func (x *exchange) reply(result command.Result[command.Answer], err error) {
	if fault.At("httpkey.send.before") != nil {
		panic(http.ErrAbortHandler)
	}
	switch {
	case err == nil && result.Replayed:
		x.replay(result.Answer)
	case err == nil && x.last != nil && x.last.fence == result.Fence:
		x.last.send(x.w)
	// The result of another attempt of this call, whose COMMIT got no reply.
	case err == nil:
		give(x.w, result.Answer)
	case x.last != nil && errors.As(err, new(*notFinalError)) && !keyAnswered(err):
		x.last.send(x.w)
	default:
		p := problemOf(err)
		if p.Status >= http.StatusInternalServerError && !x.told.Load() && x.r.Context().Err() == nil {
			x.options.Hooks.Emit(x.r.Context(), pawl.Event{Kind: pawl.EventError, Op: "command.claim", Scope: x.intent.Scope, Key: x.intent.Key, Err: err})
		}
		p.write(x.w)
	}
}

// keyAnswered reports whether err is an answer of the key, not only a failure of this handler.
func keyAnswered(err error) bool {
	switch saidOf(err) {
	case pawl.CodeOutcomeUnknown, pawl.CodeFailedFinal, pawl.CodeFenceLost:
		return true
	}
	return pawl.MayHaveHappened(err)
}

func (x *exchange) replay(answer command.Answer) {
	if x.options.Authorize != nil {
		err := x.call("Options.Authorize", func() error { return x.options.Authorize(x.request(x.r.Context())) })
		switch {
		case callback.Panicked(err):
			problem(failed).write(x.w)
			return
		case err != nil:
			problem(forbidden).write(x.w)
			return
		}
	}
	x.w.Header().Set("Idempotent-Replayed", "true")
	give(x.w, answer)
}

func give(w http.ResponseWriter, answer command.Answer) {
	switch r := answer.Response; {
	case r == nil: // settled by hand
		omitted(&command.Response{Status: http.StatusOK}).write(w)
	case answer.Result != nil:
		omitted(r).write(w)
	default:
		send(w, r.Status, r.Headers, r.Body)
	}
}

// info returns the fence of the attempt that ctx belongs to.
func info(ctx context.Context) int64 {
	i, _ := command.InfoFrom(ctx)
	return i.Fence
}
