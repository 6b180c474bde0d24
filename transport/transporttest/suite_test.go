package transporttest_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/transport/transporttest"
)

// A correct broker in memory passes the suite. With one promise broken at a time, it fails.

func TestMemory_Unordered(t *testing.T) { transporttest.Run(t, memory("", unordered)) }
func TestMemory_Ordered(t *testing.T)   { transporttest.Run(t, memory("", ordered)) }
func TestMemory_Log(t *testing.T)       { transporttest.Run(t, memory("", log)) }

// mutantEnv names the mutant, in the process that runs the suite on it.
const mutantEnv = "PAWL_TEST_MUTANT"

// TestMutantProcess is not a test of its own. It runs a suite on a broken broker or sink, and must
// fail.
func TestMutantProcess(t *testing.T) {
	switch mutant := os.Getenv(mutantEnv); {
	case mutant == "":
	case strings.HasPrefix(mutant, "sink: "), strings.HasPrefix(mutant, "batch: "):
		transporttest.RunSink(t, memorySink(mutant, strings.HasPrefix(mutant, "batch: ")))
	case strings.HasPrefix(mutant, "log: "):
		transporttest.Run(t, memory(mutant, log))
	default:
		transporttest.Run(t, memory(mutant, ordered))
	}
}

func TestSuite_NoticesEachMutant(t *testing.T) {
	t.Parallel()
	for mutant, noticed := range map[string]string{
		"changes bodies":                "Content",
		"drops attributes":              "Content",
		"drops ordering keys":           "Content",
		"looks into the past":           "InfoHoldsTogether",
		"is no evidence":                "InfoHoldsTogether",
		"waits for ever":                "EmptyQueueReturns",
		"ignores max":                   "MaxIsKept",
		"keeps acknowledged":            "AcknowledgedStaysAway",
		"takes zero receipts":           "ZeroReceiptIsRefused",
		"hides nothing":                 "HeldIsHidden",
		"drops released":                "ReleasedComesAgain",
		"hands out at the stop":         "StopStrandsNothing",
		"does not count":                "ReceivesAreCounted",
		"ignores delays":                "ReleaseDelayIsKept",
		"holds for the dead":            "CrashRedelivers",
		"has no order":                  "GroupInOrder",
		"turns groups round":            "GroupInOrder",
		"stands still":                  "GroupsGoSideBySide",
		"overtakes":                     "ReleasedHeadIsNotOvertaken",
		"acknowledges until stop":       "AcknowledgeAfterStop",
		"strands what it holds":         "StopHandsOver",
		"log: commits the newest":       "PartlyAcknowledged",
		"acknowledges what came before": "PartlyAcknowledged",
		"does not connect again":        "OldHandlesRemoveNothingElse",
		"log: holds for ever":           "LateReceiptSkipsNothing",
		"a newcomer begins at the end":  "ReceiversComeAndGo",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			if failed := failures(t, mutant, "/^"+noticed+"$"); !slices.Contains(failed, noticed) {
				t.Errorf("%s lets it pass", noticed)
			}
		})
	}
}

// Each of these mutants breaks one promise, and only the test of that promise fails.
func TestSuite_NoticesEachMutantByItsOwnTest(t *testing.T) {
	t.Parallel()
	for mutant, noticed := range map[string]string{
		"hands out too much":              "InfoHoldsTogether",
		"cuts large bodies":               "LargeBody",
		"drops empty bodies":              "EmptyBody",
		"stops at a zero":                 "AnyOctets",
		"takes octets for text":           "BinaryAttributes",
		"hands out raw ordering keys":     "BinaryOrderingKeys",
		"mixes up binary ordering keys":   "BinaryOrderingKeys",
		"settles after its end":           "StopHandsOver",
		"gives back after its end":        "StopHandsOver",
		"forgets receipts at a crash":     "PartlyAcknowledged",
		"knows tags without a session":    "OldHandlesRemoveNothingElse",
		"log: commits after a revoke":     "LateReceiptSkipsNothing",
		"loses what is left the 7th time": "ReceiversComeAndGo",
		"does not find its broker again":  "ReceivesAfterABounce",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			// a mutant fails again, a slow machine does not
			failed := slices.DeleteFunc(failures(t, mutant, ""), func(name string) bool {
				return name != noticed && len(failures(t, mutant, "/^"+name+"$")) == 0
			})
			if len(failed) != 1 || failed[0] != noticed {
				t.Errorf("failed %q, want %s", failed, noticed)
			}
		})
	}
}

// failures runs the suite, or one of its tests, on a mutant in a separate process, and returns the
// failed tests.
func failures(t *testing.T, mutant, test string) (names []string) {
	t.Helper()
	const limit = "10m"
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMutantProcess$"+test, "-test.timeout", limit, "-test.v")
	cmd.Env = append(os.Environ(), mutantEnv+"="+mutant)
	out, err := cmd.CombinedOutput()
	for _, m := range regexp.MustCompile(`(?m)^ +--- FAIL: TestMutantProcess/(\S+)`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if err == nil && len(names) > 0 || err != nil && len(names) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return names
}
