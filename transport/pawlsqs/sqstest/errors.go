package sqstest

import (
	"fmt"
	"net/http"
)

// An Error is an error response of SQS. A hook of [Faults] may return its own.
type Error struct {
	// Shape is the error's name in the SDK's model: "QueueDoesNotExist". The SDK chooses the Go
	// type by it.
	Shape string
	// Code is the code of the older query protocol: "AWS.SimpleQueueService.NonExistentQueue". It
	// is sent as x-amzn-query-error, and smithy.APIError.ErrorCode returns it. Empty means the same
	// as Shape.
	Code string
	// Message is the text for people. Some callers must match it, so it follows texts observed from
	// AWS.
	Message string
	// Status is the HTTP status; 0 means 400. From 500 on it is the service's fault and the SDK
	// retries.
	Status int
}

// Error returns "code: message".
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

// senderFault reports whether the caller is at fault. Clients do not retry those errors.
func (e *Error) senderFault() bool { return e.status() < 500 }

// blame names the party at fault, as both protocols do.
func (e *Error) blame() string {
	if e.senderFault() {
		return "Sender"
	}
	return "Receiver"
}

// Throttled is RequestThrottled, the refusal of a request rate. The SDK retries it.
func Throttled() *Error { return failure("RequestThrottled", "RequestThrottled", "Rate exceeded.") }

// Internal is a failure of the service: HTTP 500. The SDK retries it.
func Internal() *Error {
	return &Error{Shape: "InternalError", Status: http.StatusInternalServerError,
		Message: "We encountered an internal error. Please try again."}
}

const legacy = "AWS.SimpleQueueService." // prefix of most codes of the query protocol

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

// unsupportedByAWS is a refusal of SQS itself; unsupported is for actions this server lacks.
func unsupportedByAWS(text string) *Error {
	return failure("UnsupportedOperation", legacy+"UnsupportedOperation", "%s", text)
}

func unsupported(format string, args ...any) *Error {
	return failure("UnsupportedOperation", legacy+"UnsupportedOperation", "sqstest: "+format, args...)
}

func garbageHandle(handle string) *Error {
	return failure("ReceiptHandleIsInvalid", "", "The input receipt handle %q is not a valid receipt handle.", handle)
}

// expiredHandle and notInFlight share one error type, so clients can tell them apart only by their
// text.
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
