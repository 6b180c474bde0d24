package main

import (
	"strings"
	"testing"
)

func TestLab_Refusals(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"--workers 0", "--workers 9", "--rate 0", "--rate 1000", "--rate NaN", "--listen 0.0.0.0:80", "--kills 3", "--lease", "--keep", "--database-url postgres://x"} {
		wantFailure(t, pawl(t, "", append([]string{"demo", "--watch"}, strings.Fields(flags)...)...), 2, strings.Fields(flags)[0])
	}
	wantFailure(t, pawl(t, "", "demo", "--rate", "3"), 2, "--watch")
}
