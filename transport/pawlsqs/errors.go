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

// wrap gives an SDK error its operation and, where we know one, the next step.
func wrap(op, queue string, err error) error {
	return adapter.Wrap(op, err, func(err error) (short, hint string) { return diagnose(queue, err) })
}

// diagnose recognises the mistakes of a first day: a queue that is not there, credentials, an endpoint.
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
			return text, "allow the IAM actions named in the documentation of package sqs on this queue"
		case credentialCodes[code]:
			return text, "check the credentials of the client: wrong, expired, or of another account"
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
		return "no answer in time", "check the endpoint of the client and what lies between: a proxy, a firewall, a full host"
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

// needsOperator reports an error that no pause of seconds will cure: who we are, what we may, whether the queue exists.
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

// judge is the one rule for an entry of a batch that failed:
//
//	the handle can do nothing any more   dead: never again; the message returns by itself or is gone
//	the service's fault, or a throttle   again: the same entry may succeed now
//	anything else                        neither: the sender must change something
func judge(f types.BatchResultErrorEntry) outcome {
	code, message := aws.ToString(f.Code), aws.ToString(f.Message)
	o := outcome{err: fmt.Errorf("%s: %s", code, message), dead: deadHandle(code, message)}
	o.again = !o.dead && (!f.SenderFault || throttleCodes[plainCode(code)])
	return o
}

var throttleCodes = map[string]bool{"RequestThrottled": true, "ThrottlingException": true, "Throttling": true,
	"OverLimit": true, "ServiceUnavailable": true}

func plainCode(code string) string { return strings.TrimPrefix(code, "AWS.SimpleQueueService.") }

// deadHandle reports whether an entry failed because its receipt handle can do nothing any more: the message was
// deleted, became visible, was received again, or the twelve hours are over. Trying again is useless.
//
// SQS has no type for most of these; the texts are those the API reference and users' reports show. Whoever has to
// touch them: this is the only place.
func deadHandle(code, message string) bool {
	switch plainCode(code) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight":
		return true
	case "InvalidParameterValue", "InvalidParameterValueException":
	default:
		return false
	}
	text := strings.ToLower(message)
	for _, sign := range []string{
		"does not exist or is not available", // ChangeMessageVisibility of a message that is not in flight
		"receipt handle has expired",         // after twelve hours; on FIFO queues, after the visibility timeout
		"beyond the limit",                   // total visibility of more than twelve hours
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
