package pawlsqs

import (
	"bytes"
	"io"
	"net/http"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// An ownBody client sends requests with a body of its own, which is not closed early.
//
// The SDK (smithy-go v1.28.8, ClientHandler.Handle) closes a request's body as soon as it has the response's headers.
// net/http may then still be looking for the end of the body, gets io.EOF as the error of a closed body, takes it for a
// failed write and drops the connection with the answer still in it. It happens on a busy machine with a near server; for
// a receive it means messages in flight that no process holds, until their visibility ends.
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
