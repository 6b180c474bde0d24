package pawlsqs

import (
	"bytes"
	"io"
	"net/http"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// ownBody sends each request with a copy of its body that nothing closes early.
//
// The SDK (smithy-go v1.28.8, ClientHandler.Handle) closes a request's body as soon as it has the
// response's headers. At that moment net/http may still be reading the body for its end. It then
// takes the error of the closed body for a failed write and drops the connection with the unread
// response. This happens on a busy machine with a near server. After a lost response of a receive,
// messages are in flight that no process holds until their visibility ends.
type ownBody struct{ next awssqs.HTTPClient }

func (c ownBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return c.next.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return c.next.Do(r)
}
