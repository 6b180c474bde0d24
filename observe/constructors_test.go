package observe_test

import (
	"errors"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/observe"
	"github.com/pawl-go/pawl/observe/internal/metrics"
	"github.com/pawl-go/pawl/observe/otelpawl"
	"github.com/pawl-go/pawl/observe/prompawl"
)

// A nil pool is refused by the constructor, not by a panic at the first scrape.
func TestConstructors_RefuseNil(t *testing.T) {
	t.Parallel()
	_, plain := metrics.NewDatabase(nil, observe.DatabaseOptions{})
	_, prometheus := prompawl.NewDatabase(nil, observe.DatabaseOptions{})
	_, telemetry := otelpawl.Database(nil, nil, observe.DatabaseOptions{})
	for name, err := range map[string]error{"observe": plain, "prompawl": prometheus, "otelpawl": telemetry} {
		if !errors.Is(err, pawl.ErrArgumentInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
