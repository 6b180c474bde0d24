package main

import (
	"strings"
	"testing"
)

// Size computes without a database and refuses values out of bounds.
func TestSize(t *testing.T) {
	t.Parallel()
	r := mustPawl(t, "", "size", "--per-second", "1000", "--days", "30")
	for _, line := range []string{"rows  2.59 billion", "databases of that capacity  1", "index of keys"} {
		if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), strings.Join(strings.Fields(line), " ")) {
			t.Errorf("no %q in %s", line, r.stdout)
		}
	}
	growing := decode[map[string]float64](t, mustPawl(t, "", "size", "--per-second", "100000", "--json").stdout)
	random := decode[map[string]float64](t, mustPawl(t, "", "size", "--per-second", "100000", "--random-keys", "--json").stdout)
	if growing["rows"] != 100000*30*24*3600 || growing["cells"] != 34 || random["hot_octets"] < 100*growing["hot_octets"] {
		t.Errorf("%+v, %+v", growing, random)
	}
	wantFailure(t, pawl(t, "", "size", "--per-second", "0"), 2, "messages a second must lie between", "pawl size --help")
	wantFailure(t, pawl(t, "", "size", "--days", "-1"), 2, "--days must lie between", "pawl size --help")
	wantFailure(t, pawl(t, "", "size", "--key", "300"), 2, "1 to 126 octets", "pawl size --help")
}
