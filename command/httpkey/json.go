package httpkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/pawl-go/pawl/internal/payload"
)

// JSON makes a [Handler], for [Once] or [OnceSQL], of a function that takes the body of a request as an In and answers with an Out, both as
// JSON. If fn returns nil, its answer has the status, 200 to 299; with 204 and 205 it has no body, whatever the Out is. Its errors are those of a Handler. A body that does not decode into an In is
// answered 400, with a [Problem] that names the field, and fn is not called. So is null, unless an In can be nil or decodes itself. The transaction's rules are those of Handler; r holds the context, the path and the headers.
func JSON[In, Out, X any](status int, fn func(r *http.Request, tx X, in In) (Out, error)) Handler[X] {
	if fn == nil || status < 200 || status > 299 {
		panic("httpkey: JSON needs a function and a status from 200 to 299")
	}
	return func(w http.ResponseWriter, r *http.Request, tx X) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		in, err := decode[In](body)
		if err != nil {
			problem(unreadable).because(err).write(w)
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

// decode says what the caller of an HTTP service can mend, so it names fields as JSON does, and no types of Go.
func decode[In any](body []byte) (in In, err error) {
	err = payload.Decode(body, &in)
	var misfit *json.UnmarshalTypeError
	switch {
	case errors.As(err, &misfit) && misfit.Field != "":
		err = fmt.Errorf("the field %s cannot be a JSON %s", misfit.Field, misfit.Value)
	case errors.As(err, &misfit):
		err = fmt.Errorf("the body cannot be a JSON %s", misfit.Value)
	case errors.Is(err, payload.ErrNull):
		err = errors.New("the body cannot be null")
	case err != nil:
		err = fmt.Errorf("the body is not the JSON that is expected: %w", err)
	}
	return in, err
}
