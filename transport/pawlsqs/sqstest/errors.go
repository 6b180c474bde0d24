package sqstest

import (
	"fmt"
	"net/http"
)

// An Error is what SQS answers instead of a result. A hook of [Faults] may return one of its own.
type Error struct {
	// Shape names the error in the SDK's model: "QueueDoesNotExist". The SDK picks the Go type by it.
	Shape string
	// Code is the code of the older query protocol, sent as x-amzn-query-error, and what smithy.APIError.ErrorCode
	// answers: "AWS.SimpleQueueService.NonExistentQueue". Empty means the same as Shape.
	Code string
	// Message is the text for people. Some callers have to match on it, so it follows what AWS was seen to say.
	Message string
	// Status is the HTTP status; 0 means 400. From 500 on the fault is the receiver's and the SDK retries.
	Status int
}

// Error reads "code: message".
func (e *Error) Error() string { return e.code() + ": " + e.Message }

func (e *Error) code() string {
	if e.Code == "" {
		return e.Shape
	}
	return e.Code
}

func (e *Error) status() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

// senderFault reports whether the caller is to blame, which tells clients not to retry.
func (e *Error) senderFault() bool { return e.status() < 500 }

// blame names who is at fault, as both protocols say it.
func (e *Error) blame() string {
	if e.senderFault() {
		return "Sender"
	}
	return "Receiver"
}

// Throttled is the refusal of a request rate: RequestThrottled, retried by the SDK.
func Throttled() *Error { return failure("RequestThrottled", "RequestThrottled", "Rate exceeded.") }

// Internal is a failure on the service's side: HTTP 500, retried by the SDK.
func Internal() *Error {
	return &Error{Shape: "InternalError", Status: http.StatusInternalServerError,
		Message: "We encountered an internal error. Please try again."}
}

const legacy = "AWS.SimpleQueueService." // the prefix most codes of the query protocol carry

func failure(shape, code, format string, args ...any) *Error {
	return &Error{Shape: shape, Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidValue(format string, args ...any) *Error {
	return failure("InvalidParameterValueException", "InvalidParameterValue", format, args...)
}

func invalidParameter(value any, name, reason string) *Error {
	return invalidValue("Value %v for parameter %s is invalid. Reason: %s", value, name, reason)
}

func missing(name string) *Error {
	return failure("MissingParameter", "", "The request must contain the parameter %s.", name)
}

func noSuchQueue() *Error {
	return failure("QueueDoesNotExist", legacy+"NonExistentQueue", "The specified queue does not exist.")
}

func noSuchResource(what string) *Error {
	return failure("ResourceNotFoundException", "ResourceNotFoundException", "The resource that you specified for the %s doesn't exist.", what)
}

// unsupportedByAWS is what SQS itself refuses; unsupported is what is missing here.
func unsupportedByAWS(text string) *Error {
	return failure("UnsupportedOperation", legacy+"UnsupportedOperation", "%s", text)
}

func unsupported(format string, args ...any) *Error {
	return failure("UnsupportedOperation", legacy+"UnsupportedOperation", "sqstest: "+format, args...)
}

func garbageHandle(handle string) *Error {
	return failure("ReceiptHandleIsInvalid", "", "The input receipt handle %q is not a valid receipt handle.", handle)
}

// expiredHandle and notInFlight have no type of their own: clients can tell them apart by their text only.
func expiredHandle(handle string) *Error {
	return invalidParameter(handle, "ReceiptHandle", "The receipt handle has expired.")
}

func notInFlight(handle string) *Error {
	return invalidParameter(handle, "ReceiptHandle",
		"Message does not exist or is not available for visibility timeout change.")
}

func overLimit() *Error {
	return failure("OverLimit", "", "Too many messages in flight: delete some or wait for their visibility timeout.")
}
