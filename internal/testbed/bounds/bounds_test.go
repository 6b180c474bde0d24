package bounds_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/bounds"
)

type config struct {
	Wait   time.Duration
	Batch  int
	Name   string
	hidden int
}

var (
	wait  = bounds.Setting{Name: "Wait", Least: time.Second, Most: pawl.Forever}
	batch = bounds.Setting{Name: "Batch", Least: 1, Most: 10}
)

// A heard is a testing.TB that records its errors.
type heard struct {
	testing.TB
	errors []string
}

func (h *heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.errors = append(h.errors, fmt.Sprintf(format, args...))
}

// A number without a setting and a setting without a number are both reported.
func TestComplete_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for want, settings := range map[string][]bounds.Setting{
		"":                            {wait, batch},
		"config.Batch has no bounds":  {wait},
		"has no number or duration X": {wait, batch, {Name: "X", Least: 1, Most: 2}},
		"number or duration Name":     {wait, batch, {Name: "Name", Least: 1, Most: 2}},
	} {
		h := &heard{TB: t}
		bounds.Complete[config](h, settings...)
		if got := strings.Join(h.errors, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Each yields every bound once. The values just outside reach the function that refuses them.
func TestEach_AndValuesOutside(t *testing.T) {
	t.Parallel()
	all := maps.Collect(bounds.Each(config{Name: "base", hidden: 1}, wait, batch))
	names := slices.Sorted(maps.Keys(all))
	if want := []string{"Batch 1", "Batch 10", "Wait 1s", "Wait 2562047h47m16.854775807s", "all largest", "all least"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if got, want := all["Batch 10"], (config{Name: "base", hidden: 1, Batch: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := all["all least"], (config{Name: "base", hidden: 1, Wait: time.Second, Batch: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var tried []config
	bounds.Refused(t, func(c config) error {
		tried = append(tried, c)
		return &pawl.Error{Code: pawl.CodeArgumentInvalid, Err: errors.New(strings.Join([]string{
			fmt.Sprintf("Wait is %v", c.Wait), fmt.Sprintf("Batch is %v", c.Batch)}, ", "))}
	}, wait, batch)
	if want := []config{{Wait: time.Second - 1}, {Batch: -1}, {Batch: 11}}; !slices.Equal(tried, want) {
		t.Errorf("tried %+v, want %+v", tried, want)
	}
}
