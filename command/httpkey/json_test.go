package httpkey_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
)

// A typed handler takes and gives JSON. Its answer is replayed, a body that does not decode changes nothing, and its errors are those of a Handler.
func TestJSON(t *testing.T) {
	t.Parallel()
	type wish struct{ Note string }
	type made struct {
		ID int64 `json:"id"`
	}
	b := setup(t)
	s := b.once(httpkey.JSON(http.StatusCreated, func(r *http.Request, tx pgx.Tx, in wish) (made, error) {
		if in.Note == "never" {
			return made{}, pawl.Final(errors.New("never"))
		}
		id, err := insert(r, tx)
		return made{id}, err
	}), httpkey.Options{})
	first := s.post("k", `{"note": "a"}`)
	b.wantStatus(first, http.StatusCreated)
	if first.header.Get("Content-Type") != "application/json" || first.body != `{"id":1}`+"\n" {
		t.Errorf("%s", first)
	}
	if again := s.post("k", `{"note": "a"}`); !again.replayed() || again.stored() != first.stored() {
		t.Errorf("first %s, again %s", first, again)
	}
	for _, bad := range []string{"", "no JSON", `{"note": 1}`, `{"note": "a"} {}`} {
		b.wantStatus(s.post("bad "+bad[:min(len(bad), 5)]+string(rune('a'+len(bad))), bad), http.StatusBadRequest)
	}
	b.wantStatus(s.post("never", `{"note": "never"}`), http.StatusUnprocessableEntity)
	b.wantOrders(1)
}

func TestJSON_RefusesWhatCannotAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 199, 300, 404} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d is taken", status)
				}
			}()
			httpkey.JSON(status, func(*http.Request, pgx.Tx, string) (string, error) { return "", nil })
		}()
	}
}

// An answer without a body is one, too.
func TestJSON_NoContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(httpkey.JSON(http.StatusNoContent, func(r *http.Request, tx pgx.Tx, _ struct{}) (struct{}, error) {
		_, err := insert(r, tx)
		return struct{}{}, err
	}), httpkey.Options{})
	for range 2 {
		got := s.post("k", "{}")
		b.wantStatus(got, http.StatusNoContent)
		if got.body != "" {
			t.Errorf("%s", got)
		}
	}
	b.wantOrders(1)
}
