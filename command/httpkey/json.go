package httpkey

import (
	"encoding/json"
	"io"
	"net/http"
)

// JSON makes a [Handler], for [Once] or [OnceSQL], of a function that takes the body of a request as an In and answers with an Out, both as
// JSON. If fn returns nil, its answer has the status, 200 to 299; with 204 and 205 it has no body, whatever the Out is. Its errors are those of a Handler. A body that does not decode into an In is
// answered 400, and fn is not called. The transaction's rules are those of Handler; r holds the context, the path and the headers.
func JSON[In, Out, X any](status int, fn func(r *http.Request, tx X, in In) (Out, error)) Handler[X] {
	if fn == nil || status < 200 || status > 299 {
		panic("httpkey: JSON needs a function and a status from 200 to 299")
	}
	return func(w http.ResponseWriter, r *http.Request, tx X) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			http.Error(w, "the body is not the JSON that is expected: "+err.Error(), http.StatusBadRequest)
			return nil
		}
		out, err := fn(r, tx, in)
		if err != nil {
			return err
		}
		if status == http.StatusNoContent || status == http.StatusResetContent {
			w.WriteHeader(status)
			return nil
		}
		answer, err := json.Marshal(out)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, err = w.Write(append(answer, '\n'))
		return err
	}
}
