package httpkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/pawl-go/pawl/internal/payload"
)

// JSON returns a [Handler] for [Once] or [OnceSQL] that decodes the body into an In and writes an
// Out as JSON, with a status of 200 to 299. With 204 and 205 there is no body. Errors and the rules
// of the transaction are those of Handler. Use r for the context, the path and the headers.
//
// If the body does not decode into an In, the response is 400 with a [Problem] that names the
// field, and fn does not run. A null body is accepted only if In can be nil or decodes itself.
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

// decode returns errors for HTTP clients: they name fields as JSON does, and no Go types.
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
