//go:build proof

package sqstest_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
	"github.com/pawl-go/pawl/transport/pawlsqs/sqstest"
)

const (
	// the last that need no other
	oldBotocore = "botocore==1.29.165\njmespath==1.1.0\npython-dateutil==2.9.0.post0\nsix==1.17.0\nurllib3==1.26.20\n"
	newBotocore = "botocore==1.44.8\njmespath==1.1.0\npython-dateutil==2.9.0.post0\nsix==1.17.0\nurllib3==2.8.0\n"
)

// A botocore of the query protocol and one of the JSON protocol get the same results for the same
// 46 calls, which cover every action.
func TestQuery_SameAsJSON(t *testing.T) {
	t.Parallel()
	transcript := func(version, packages, protocol string) []string {
		t.Helper()
		python, err := brokers.Python(t.Context(), "botocore", version, packages, brokers.Options{Log: func(line string) { t.Log(line) }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := sqstest.New(sqstest.Options{}).StartAt("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), python, "testdata/calls.py", l.URL)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("botocore %s: %v\n%s%s", version, err, stdout.String(), stderr.String())
		}
		if got := strings.TrimSpace(stderr.String()); got != "protocol "+protocol {
			t.Fatalf("botocore %s speaks %q, want %s", version, got, protocol)
		}
		return strings.Split(strings.ReplaceAll(stdout.String(), l.URL, "URL"), "\n")
	}
	query, json := transcript("1.29.165", oldBotocore, "query"), transcript("1.44.8", newBotocore, "json")
	if len(query) != len(json) || len(json) != 47 {
		t.Fatalf("%d and %d lines, want 47\n%s", len(query), len(json), strings.Join(query, "\n"))
	}
	actions := map[string]bool{}
	for i := range json {
		if query[i] != json[i] {
			t.Errorf("in XML  %s\nin JSON %s", query[i], json[i])
		}
		action, _, _ := strings.Cut(json[i], " ")
		actions[action] = true
	}
	delete(actions, "")
	if len(actions) != 22 { // all actions of botocore 1.29 except RemovePermission
		t.Errorf("%d actions were tried: %v", len(actions), actions)
	}
}
