package ranges_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/ranges"
)

type inner struct{ Base time.Duration }

type Policy struct{ Timeout time.Duration }

type config struct {
	Policy
	Wait   time.Duration
	Count  int
	Size   int64
	Share  float64
	Grace  time.Duration
	Name   string
	Of     func()
	Any    any
	At     time.Time
	Inner  inner
	All    []inner
	Names  []string
	hidden int
}

// Each negative number is named with its value, also in a struct, an embedded one, and a slice. A
// field that may be negative, and what is no exported number, is left alone.
func TestNotNegative(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]config{
		"":                         {Wait: time.Second, Count: 1, Grace: -1, hidden: -1, At: time.Unix(-1, 0), Any: -1, Names: []string{""}},
		"Wait must not":            {Wait: -1},
		"Count must not":           {Count: -1},
		"it is -2":                 {Size: -2},
		"Share must not":           {Share: -0.5},
		"Policy.Timeout must not":  {Policy: Policy{-1}},
		"Inner.Base must not":      {Inner: inner{-1}},
		"it is -1ns: leave it out": {Inner: inner{-1}},
		"All[1].Base must not":     {All: []inner{{}, {-1}}},
	} {
		err := ranges.NotNegative(c, "Grace")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
