//go:build proof

package pawlrabbitmq_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/transport/pawlrabbitmq"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// Environment variables that give TestMutantProcess its mutant and its server.
const (
	mutantEnv = "PAWL_TEST_MUTANT"
	addrEnv   = "PAWL_TEST_RABBITMQ"
)

var mutants = map[string]func(*pawlrabbitmq.Source) pawl.Source{
	"tag without session":  func(s *pawlrabbitmq.Source) pawl.Source { return pawlrabbitmq.TagOnly{Source: s} },
	"cancel before settle": func(s *pawlrabbitmq.Source) pawl.Source { return pawlrabbitmq.CancelFirst{Source: s} },
	"acknowledge all":      func(s *pawlrabbitmq.Source) pawl.Source { return pawlrabbitmq.AckAll{Source: s} },
}

// TestMutantProcess runs a suite on a mutant, in a child process. It must fail.
func TestMutantProcess(t *testing.T) {
	mutant, addr := os.Getenv(mutantEnv), os.Getenv(addrEnv)
	if mutant == "" {
		return
	}
	if mutant == "tag without session" {
		f := queueOn(t, &rabbit{addr: addr}, quorum())
		f.source, f.knife = f.open(pawlrabbitmq.Config{})
		f.lateReceipt(mutants[mutant](f.source))
		return
	}
	cfg := pawlrabbitmq.Config{OrderingKey: pawlrabbitmq.ByHeader("account")}
	b := broker(&rabbit{addr: addr}, single(), cfg)
	whole := b.Open
	b.Timeout = 8 * time.Second
	b.Open = func(t *testing.T) transporttest.Queue {
		q := whole(t)
		open, originals := q.Source, map[pawl.Source]pawl.Source{}
		q.Source = func(t *testing.T) pawl.Source {
			s := open(t)
			m := mutants[mutant](s.(*pawlrabbitmq.Source))
			originals[m] = s
			return m
		}
		for _, f := range []*func(pawl.Source){&q.Abandon, &q.Disconnect, &q.Revoke} {
			of := *f
			*f = func(s pawl.Source) { of(originals[s]) }
		}
		return q
	}
	transporttest.Run(t, b)
}

// The acceptance suite and the test of late receipts find each mutant.
func TestSource_MutantsAreFound(t *testing.T) {
	t.Parallel()
	for mutant, noticed := range map[string]string{
		"tag without session":  "",
		"cancel before settle": "GroupGoesOnAfterAStop",
		"acknowledge all":      "PartlyAcknowledged",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMutantProcess$/"+noticed, "-test.timeout", "2m", "-test.v")
			cmd.Env = append(os.Environ(), mutantEnv+"="+mutant, addrEnv+"="+sharedServer(t).Addr())
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+strings.TrimSuffix("TestMutantProcess/"+noticed, "/")) {
				t.Errorf("%s lets it pass: %v\n%s", noticed, err, out)
			}
		})
	}
}
