package pawlsqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/pawl-go/pawl/transport/internal/adapter"
)

func wrap(op, queue string, err error) error {
	return adapter.Wrap(op, err, func(err error) (short, hint string) { return diagnose(queue, err) })
}

// diagnose recognises common mistakes of a first setup: a missing queue, wrong credentials, a wrong
// endpoint.
func diagnose(queue string, err error) (short, hint string) {
	var missing *types.QueueDoesNotExist
	var address *types.InvalidAddress
	var api smithy.APIError
	switch {
	case errors.As(err, &missing):
		return fmt.Sprintf("queue %q does not exist", queue),
			"create it, or check the region, the account and the endpoint of the client: a queue is seen only where it was created"
	case errors.As(err, &address):
		return fmt.Sprintf("queue address %q is not valid for this endpoint", queue),
			"pass the queue's name or its full URL"
	case errors.As(err, &api):
		text := fmt.Sprintf("%s: %s", api.ErrorCode(), api.ErrorMessage())
		switch code := api.ErrorCode(); {
		case denied(code):
			return text, "allow the IAM actions named in the documentation of package pawlsqs on this queue"
		case credentialCodes[code]:
			return text, "check the credentials of the client: they may be wrong, expired, or of another account"
		}
		return text, ""
	}
	var network *net.OpError
	var name *net.DNSError
	text := err.Error()
	switch {
	case noCredentials(text):
		return "no AWS credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role; " +
			"for a local endpoint any static pair will do"
	case strings.Contains(text, "Missing Region"):
		return "no AWS region", "set AWS_REGION or the Region of the client's options"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time", "check the endpoint of the client and the path to it: a proxy, a firewall, an overloaded host"
	case errors.As(err, &network), errors.As(err, &name):
		reason := "connection failed"
		if at := strings.LastIndex(text, "dial "); at >= 0 {
			reason = text[at:]
		}
		return "endpoint unreachable: " + reason, "check the endpoint or region of the client, and the network to it"
	}
	return "", ""
}

func denied(code string) bool { return strings.Contains(code, "AccessDenied") }

// needsOperator reports whether err will not go away by itself: credentials, permissions or a
// missing queue.
func needsOperator(err error) bool {
	var missing *types.QueueDoesNotExist
	var api smithy.APIError
	switch {
	case errors.As(err, &missing):
		return true
	case errors.As(err, &api):
		return denied(api.ErrorCode()) || credentialCodes[api.ErrorCode()]
	}
	return noCredentials(err.Error())
}

func noCredentials(text string) bool {
	return strings.Contains(text, "get credentials") || strings.Contains(text, "get identity")
}

var credentialCodes = map[string]bool{
	"InvalidClientTokenId": true, "UnrecognizedClientException": true, "SignatureDoesNotMatch": true,
	"ExpiredToken": true, "ExpiredTokenException": true, "RequestExpired": true, "InvalidSecurity": true,
	"MissingAuthenticationToken": true, "MissingAuthenticationTokenException": true, "IncompleteSignature": true,
}

// judge classifies a failed entry of a batch:
//
//	the handle is no longer usable       dead: no retry; the message returns by itself or is gone
//	the service's fault, or a throttle   again: the same entry may succeed now
//	anything else                        neither: the sender must change something
func judge(f types.BatchResultErrorEntry) entryResult {
	code, message := aws.ToString(f.Code), aws.ToString(f.Message)
	o := entryResult{err: fmt.Errorf("%s: %s", code, message), dead: deadHandle(code, message)}
	o.again = !o.dead && (!f.SenderFault || throttleCodes[shortCode(code)])
	return o
}

var throttleCodes = map[string]bool{"RequestThrottled": true, "ThrottlingException": true, "Throttling": true,
	"OverLimit": true, "ServiceUnavailable": true}

func shortCode(code string) string { return strings.TrimPrefix(code, "AWS.SimpleQueueService.") }

// deadHandle reports whether an entry failed because its receipt handle is no longer usable: the
// message was deleted, became visible, was received again, or twelve hours have passed. A retry is
// useless.
//
// SQS has no error type for most of these cases. The texts come from the API reference and from
// users' reports. If AWS changes one, change it here; no other code reads them.
func deadHandle(code, message string) bool {
	switch shortCode(code) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight":
		return true
	case "InvalidParameterValue", "InvalidParameterValueException":
	default:
		return false
	}
	text := strings.ToLower(message)
	for _, sign := range []string{
		// ChangeMessageVisibility of a message that is not in flight
		"does not exist or is not available",
		// after twelve hours; on FIFO queues after the visibility timeout
		"receipt handle has expired",
		"beyond the limit", // total visibility above twelve hours
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
