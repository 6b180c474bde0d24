package dashboard_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/pawl-go/pawl/dashboard"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// Authorize returns the user of your own login. Here a browser asks for a name and a password.
func ExampleNew() {
	e := &pgtest.Example{}
	defer e.End()
	pool := pawltest.DB(e) // yours: two pools, with the rights of pawl_reader and of pawl_operator
	board, err := dashboard.New(dashboard.Config{
		Pool:      pool,
		Operators: pool,
		Authorize: func(r *http.Request) (dashboard.User, error) {
			name, password, _ := r.BasicAuth()
			if password != "secret" {
				return dashboard.User{}, &dashboard.Refusal{Status: http.StatusUnauthorized, Header: http.Header{"WWW-Authenticate": {"Basic"}}}
			}
			return dashboard.User{Name: name, MayChange: true}, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/pawl/", http.StripPrefix("/pawl", board))

	for _, password := range []string{"guess", "secret"} {
		r := httptest.NewRequest(http.MethodGet, "/pawl/", nil)
		r.SetBasicAuth("ann", password)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}
