package httpkey_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command/httpkey"
)

// A JSON answer is replayed, a bad body changes nothing, and errors are those of a Handler.
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
	for bad, detail := range map[string]string{
		"": "unexpected end of JSON input", "no JSON": "invalid character", `{"note": "a"} {}`: "after top-level value",
		`{"note": 1}`: "the field Note cannot be a JSON number", "7": "the body cannot be a JSON number", " null ": "the body cannot be null",
	} {
		got := s.post("bad-"+strconv.Itoa(len(bad)), bad)
		b.wantStatus(got, http.StatusBadRequest)
		var p httpkey.Problem
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || !strings.Contains(p.Detail, detail) || strings.Contains(p.Detail, "Go ") {
			t.Errorf("%q: %s, want %s", bad, got.body, detail)
		}
	}
	b.wantStatus(s.post("never", `{"note": "never"}`), http.StatusUnprocessableEntity)
	b.wantOrders(1)
}

// null is a valid body if the type can be nil.
func TestJSON_Null(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.once(httpkey.JSON(http.StatusOK, func(_ *http.Request, _ pgx.Tx, in *struct{ Note string }) (bool, error) { return in == nil, nil }), httpkey.Options{})
	if got := s.post("k", "null"); got.body != "true\n" {
		t.Errorf("%s", got)
	}
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

// An answer without a body is stored and replayed, too.
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
