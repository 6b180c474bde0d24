package layers

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A retired word was replaced before the first tag and must not return. Two words for one thing
// make readers look for a difference.
type retired struct {
	word string // regular expression
	now  string // replacement
}

// words are the retired words.
var words = []retired{
	{`\bflow\.[A-Z]|pawl/flow\b|\bpackage flow\b`, "package consumer"},
	{`\beffect\.[A-Z]|pawl/effect\b|\bpackage effect\b`, "package step"},
	{`\bstep\.(Do|File|Policy)\b|` + "`Do`", "step.Run, step.Step.Recovery"},
	{`\b[Ee]ffect log\b|\[.?effect.?\]\(|\b[Aa]n [\[` + "`" + `]*step\b`, "step log, a step"},
	{`\b[Ll]and(s|ed|ing)?\b`, "store, stored"},
	{`\bHandleBatch\b`, "HandleManyTx"},
	{`\b(Ack)?Patience\b`, "AcquireTimeout, ResponseTimeout, Timeout"},
	{`\bKey(TTL|Ttl)\b|\bKeepFor\b|\b(key_)?ttl(_ms)?\b`, "Retention"},
	{`\b(Err|Code)MessageReused\b|\bP4050\b`, "ErrKeyReused (P4002); the code mismatch of a dead letter"},
	{`\btransport/sqs\b`, "transport/pawlsqs"},
	{`"github.com/pawl-go/pawl/sql"|\bsql/(api|tables|dist|sqlstates)\b`, "package schema"},
	{`\bpawl\.(Evidence|AckAtOnce|RedeliveryHorizon)\b`, "SourceInfo"},
	{`\bp_message_ids?\b|\bi\.message_id\b|\bp_args\b`, "p_key, key, p_payload"},
	{`\bguard\.(TryLock|AcceptFence|FenceHeader)\b`, "package lock"},
	{`\bhttpkey\.Policy\b|\bpawltest\.Attempt\b|\binbox\.Verdict\b`, "httpkey.Options, pawltest.DrainedJob"},
	{`\bjob\.(Claim|KickAfter)\b|\boutbox\.Kind\b|\bpawl\.(OwnerOf|ParseFingerprint)\b`, "internal packages"},
	{`\bconsumer\.Gate\b|\bQueue\.Gate\b`, "SequenceGate, Admit"},
}

// history are folders and files about earlier states. docs/proof.md quotes what the tests printed
// when a stage last passed.
var history = []string{".git", "CHANGELOG.md", "bench/results", "docs/api", "docs/decisions", "docs/internals", "docs/proof.md", "docs/reference/coming-from.md", "internal/testbed/layers/words_test.go"}

// borrowed are words of other systems, with the folders and files that must name them.
// ttl is a word of Patroni and RabbitMQ.
var borrowed = map[string][]string{"ttl": {"internal/testbed/hatest/", "docs/operating/high-availability.md", "transport/pawlrabbitmq/", "docs/guides/rabbitmq.md"}}

func isBorrowed(word, name string) bool {
	return slices.ContainsFunc(borrowed[word], func(place string) bool { return strings.HasPrefix(name, place) })
}

// Retired words occur only in the history.
func TestWords_RetiredOnesStayAway(t *testing.T) {
	t.Parallel()
	patterns := make([]*regexp.Regexp, len(words))
	var all []string
	for i, w := range words {
		patterns[i], all = regexp.MustCompile(w.word), append(all, w.word)
	}
	anyOf := regexp.MustCompile(strings.Join(all, "|"))
	files := 0
	err := fs.WalkDir(os.DirFS("../../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case (slices.Contains(history, name) || path.Base(name) == "node_modules" || name == "site/dist") && d.IsDir():
			return fs.SkipDir
		case slices.Contains(history, name), d.IsDir(), !slices.Contains([]string{".go", ".md", ".sql", ".csv", ".txt", ".py", ".js", ".yml"}, path.Ext(name)):
			return nil
		}
		files++
		text, err := os.ReadFile(path.Join("../../..", name))
		if !anyOf.Match(text) {
			return err
		}
		for n, line := range strings.Split(string(text), "\n") {
			for i, p := range patterns {
				if found := p.FindString(line); found != "" && !isBorrowed(found, name) {
					t.Errorf("%s:%d: %q is now %s", name, n+1, found, words[i].now)
				}
			}
		}
		return err
	})
	if err != nil || files < 400 {
		t.Errorf("%d files: %v", files, err)
	}
}
