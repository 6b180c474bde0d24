package pawlsqs

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// judge classifies failed entries of a batch.
func TestJudge(t *testing.T) {
	t.Parallel()
	const handle = "Value AQEB for parameter ReceiptHandle is invalid. Reason: "
	for _, c := range []struct {
		code, message string
		sender        bool
		dead, again   bool
	}{
		{"InternalError", "We encountered an internal error.", false, false, true},
		{"ServiceUnavailable", "", false, false, true},
		{"RequestThrottled", "Rate exceeded.", true, false, true},
		{"OverLimit", "", true, false, true},
		{"ReceiptHandleIsInvalid", "", true, true, false},
		{"ReceiptHandleIsInvalid", "", false, true, false},
		{"InvalidParameterValue", handle + "The receipt handle has expired.", true, true, false},
		{"InvalidParameterValue", handle + "Message does not exist or is not available for visibility timeout change.", true, true, false},
		{"InvalidParameterValue", "Value -1 for parameter VisibilityTimeout is invalid.", true, false, false},
		{"InvalidMessageContents", "", true, false, false},
		{"AccessDeniedException", "", true, false, false},
	} {
		o := judge(types.BatchResultErrorEntry{Code: &c.code, Message: &c.message, SenderFault: c.sender})
		if o.err == nil || o.dead != c.dead || o.again != c.again {
			t.Errorf("%s, %s, sender %v: %+v", c.code, c.message, c.sender, o)
		}
	}
}

// Only AWS's texts distinguish an expired handle from a bad argument.
func TestDeadHandle(t *testing.T) {
	t.Parallel()
	const value = "Value AQEB for parameter ReceiptHandle is invalid. Reason: "
	for _, c := range []struct {
		code, message string
		want          bool
	}{
		{"ReceiptHandleIsInvalid", "The input receipt handle is invalid.", true},
		{"AWS.SimpleQueueService.ReceiptHandleIsInvalid", "", true},
		{"AWS.SimpleQueueService.MessageNotInflight", "", true},
		{"MessageNotInflight", "", true},
		{"InvalidParameterValue", value + "Message does not exist or is not available for visibility timeout change.", true},
		{"InvalidParameterValue", value + "The receipt handle has expired.", true},
		{"InvalidParameterValue", value + "The receipt handle has expired", true},
		{"InvalidParameterValue", "Value 600 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]", true},
		{"InvalidParameterValue", "Value -1 for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer between 0 and 43200.", false},
		{"InternalError", "does not exist or is not available", false},
		{"RequestThrottled", "", false},
		{"AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.", false},
		{"", "", false},
	} {
		if got := deadHandle(c.code, c.message); got != c.want {
			t.Errorf("%s, %s: got %v", c.code, c.message, got)
		}
	}
}
