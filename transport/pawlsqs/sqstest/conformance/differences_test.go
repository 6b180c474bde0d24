package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/testbed/brokers"
)

var update = flag.Bool("update", false, "write the differences of other servers into docs/reference/sqs.md")

// A difference is a check that another SQS server fails, in the version that package brokers names.
// TestOthers verifies each.
type difference struct {
	check string
	wrong string // regular expression of the failure; empty if the check is not run
	does  string // text for the page
}

// others are the servers in the order of the page's columns.
var others = []struct {
	name, version string
	differences   []difference
}{
	{"ElasticMQ", brokers.ElasticMQVersion, []difference{
		{"queue/missing", "refused with .*QueueDoesNotExist, want AWS.SimpleQueueService.NonExistentQueue", "has the type, and not the code `AWS.SimpleQueueService.NonExistentQueue`"},
		{"queue/attributes", "VisibilityTimeout 43201 is accepted", "no upper bound of `VisibilityTimeout`"},
		{"queue/purge", "the second PurgeQueue is accepted", "at any time"},
		{"message/attributes", `for bar\.\* is 0`, "a prefix matches no attribute"},
		{"message/size", "an octet more is refused with .*InvalidAttributeValue", "refused with `InvalidAttributeValue`"},
		{"message/characters", "refused with .*InvalidAttributeValue: InvalidMessageContents", "refused with `InvalidAttributeValue`"},
		{"batch/limits", "an empty batch is accepted", "an empty batch is accepted"},
		{"batch/size", "refused with .*InvalidAttributeValue: MessageTooLong", "refused with `InvalidAttributeValue`"},
		{"visibility/ceiling", "43,201 s is accepted", "43,201 s is accepted"},
		{"visibility/not-in-flight", "the change is accepted", "the change is accepted"},
		{"delete/superseded", "older handle: .*ReceiptHandleIsInvalid", "refused with `ReceiptHandleIsInvalid`; the message stays"},
		{"delete/twice", "the second delete: .*ReceiptHandleIsInvalid", "the second delete is refused with `ReceiptHandleIsInvalid`"},
		{"retention", "received 1 messages", "messages are kept longer"},
		{"receive/bounds", "11 messages is refused with .*InvalidAttributeValue", "refused with `InvalidAttributeValue`"},
		{"dlq/move-task", "has the id it had", "the message keeps its id"},
		{"fifo/name", "without .fifo is refused with .*InvalidAttributeName", "refused with `InvalidAttributeName`"},
		{"fifo/group-required", `deduplication id is refused with com\.amazonaws\.sqs#InvalidParameterValue`, "the code is `com.amazonaws.sqs#InvalidParameterValue`"},
		{"fifo/deduplication-scope", "received 1 messages, want 2", "always the whole queue"},
		{"fifo/receive-attempt", "the handle is", "the same messages with new handles"},
		{"fifo/delete-after-expiry", "the delete is accepted", "the delete is accepted"},
		{"fifo/dlq-type", "a standard dead-letter queue is accepted", "a standard queue is accepted"},
	}},
	{"moto", brokers.MotoVersion, []difference{
		{"queue/attributes", "VisibilityTimeout 43201 is accepted", "no upper bound of `VisibilityTimeout`"},
		{"message/size", "an attribute makes too large is accepted", "attributes do not count"},
		{"message/characters", "a control character is accepted", "accepted"},
		{"batch/send", "2 successful, 0 failed", "a control character is accepted"},
		{"batch/limits", "a batch of 11 is refused with .*BatchEntryIdsNotDistinct", "a batch of 11 is refused with `BatchEntryIdsNotDistinct`"},
		{"visibility/not-in-flight", "the change is accepted", "the change is accepted"},
		{"delete/superseded", "received 0 messages", "the message is deleted"},
		{"dlq/after-max-receives", "DeadLetterQueueSourceArn is ,", "no `DeadLetterQueueSourceArn`"},
		{"dlq/move-task", "StatusCode: 500", "not there: the answer is HTTP 500"},
		{"pollers/none-lost", "", "not tried: a send takes the longer the more messages there are. Two polls at once were seen to get one message"},
		{"fifo/order", "sequence number", "in order, but sequence numbers are random"},
		{"fifo/name", "a standard queue with .fifo is accepted", "a name that ends in .fifo makes no FIFO queue and is accepted"},
		{"fifo/deduplication", "the id of the second send", "one message, but each send gets an id of its own"},
		{"fifo/content-based", "the id of the second send", "the same"},
		{"fifo/deduplication-scope", "received 1 messages, want 2", "always the whole queue"},
		{"fifo/receive-attempt", "received 0 messages", "ignored"},
		{"fifo/redelivery", "received .*want \"2 3\"", "**out of order**: the last of the group comes first"},
		{"fifo/delete-after-expiry", "the delete is accepted", "the delete is accepted"},
		{"fifo/dlq", "MessageDeduplicationId is gpoison", "the deduplication id stays as it was"},
		{"fifo/dlq-type", "refused with InvalidParameterCombination", "refused with `InvalidParameterCombination`"},
	}},
	{"LocalStack", brokers.LocalStackVersion, []difference{
		{"queue/attributes", "VisibilityTimeout 43201 is accepted", "no upper bound of `VisibilityTimeout`"},
		{"queue/purge", "the second PurgeQueue is accepted", "at any time"},
		{"batch/send", "SenderFault is false", "`SenderFault` is false"},
		{"visibility/ceiling", "43,201 s is accepted", "43,201 s is accepted"},
		{"visibility/not-in-flight", "the change is accepted", "the change is accepted"},
		{"delete/superseded", "received 0 messages", "the message is deleted"},
		{"retention", "received 1 messages", "messages are kept longer"},
		{"receive/bounds", "43,201 s is accepted", "no upper bound of the visibility timeout"},
		{"dlq/move-task", "has the id it had", "the message keeps its id"},
		{"fifo/deduplication", "its sequence number is", "one message, but each send gets a sequence number of its own"},
		{"fifo/released", `received 2 messages \(2 3\)`, "**out of order**: those behind the head are handed out while it is in flight"},
		{"fifo/receive-attempt", "received 0 messages", "ignored"},
		{"fifo/dlq", "MessageDeduplicationId is gpoison", "the deduplication id stays as it was"},
		{"fifo/dlq-type", "a standard dead-letter queue is accepted", "a standard queue is accepted"},
	}},
}

// differencesOf returns the differences of a server, by check.
func differencesOf(t *testing.T, name string) map[string]difference {
	t.Helper()
	for _, o := range others {
		if o.name != name {
			continue
		}
		all := map[string]difference{}
		for _, d := range o.differences {
			if _, twice := all[d.check]; twice {
				t.Errorf("%s is listed twice for %s", d.check, name)
			}
			all[d.check] = d
		}
		return all
	}
	t.Fatalf("no differences are listed for %s", name)
	return nil
}

// The page shows the differences that are tested.
func TestDifferences_AreInThePage(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../../../docs/reference/sqs.md", "<!-- differences: go test ./transport/pawlsqs/sqstest/conformance -update -->\n", "<!-- /differences -->"
	octets, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(octets), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no part between %q and %q", page, begin, end)
	}
	want := differencesTable(t)
	if shown == want {
		return
	}
	if !*update {
		t.Fatalf("%s shows\n%s\nand tested is\n%s\nRun go test ./transport/pawlsqs/sqstest/conformance -run Differences -update", page, shown, want)
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func differencesTable(t *testing.T) string {
	var table strings.Builder
	head, line := "| check |", "|---|"
	var differ []map[string]difference
	for _, o := range others {
		head, line = head+" "+o.name+" "+o.version+" |", line+"---|"
		differ = append(differ, differencesOf(t, o.name))
	}
	fmt.Fprintf(&table, "%s\n%s\n", head, line)
	for _, c := range all {
		row, some := "| `"+c.name+"` |", false
		for _, d := range differ {
			does, differs := d[c.name]
			some = some || differs
			row += strings.TrimRight(" "+does.does, " ") + " |"
			delete(d, c.name)
		}
		if some {
			table.WriteString(row + "\n")
		}
	}
	for i, d := range differ {
		for name := range d {
			t.Errorf("there is no check %s, listed for %s", name, others[i].name)
		}
	}
	return table.String()
}
