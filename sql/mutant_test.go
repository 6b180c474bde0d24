package sql_test

import (
	"testing"

	"github.com/pawl-go/pawl/pawltest"
)

func TestProtocol_Base(t *testing.T) {
	t.Parallel()
	n, err := protocol{}.explore(t.Context(), pawltest.URL(t, protocolTables))
	t.Logf("%d states", n)
	if err != nil {
		t.Fatal(err)
	}
}
