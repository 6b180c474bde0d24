package httpkey

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/internal/callback"
)

// A recording buffers a response until COMMIT, so it cannot stream. As in net/http, the default
// status is 200, a second status is ignored, and headers are fixed with the status.
type recording struct {
	options *Options
	fence   int64 // of the attempt

	mu     sync.Mutex
	header http.Header
	final  http.Header // fixed with the status
	status int
	body   bytes.Buffer
	lost   int64 // bytes beyond mostBuffered
	sealed bool  // stored, or the handler has returned
	late   bool  // written to after it was sealed
}

// ErrSealed is returned by a Write after the response was stored or the handler returned.
var ErrSealed = errors.New("httpkey: the response is sealed; write it before Commit")

var errStreaming = fmt.Errorf("httpkey: the response is sent after COMMIT and cannot be streamed: %w", errors.ErrUnsupported)

func newRecording(p *Options, fence int64) *recording {
	return &recording{options: p, fence: fence, header: http.Header{}}
}

// FlushError is what [http.ResponseController.Flush] calls.
func (*recording) FlushError() error { return errStreaming }

// Hijack implements [http.Hijacker] and always fails.
func (*recording) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errStreaming }

func (c *recording) Header() http.Header { return c.header }

func (c *recording) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpkey: %d is not an HTTP status", status))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		c.late = true
		return
	}
	if status >= 200 {
		c.begin(status) // 1xx cannot be sent before COMMIT
	}
}

// begin fixes status and headers. The caller holds mu.
func (c *recording) begin(status int) {
	if c.status == 0 {
		c.status, c.final = status, c.header.Clone()
	}
}

func (c *recording) Write(octets []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		c.late = true
		return 0, ErrSealed
	}
	c.begin(http.StatusOK)
	switch {
	case bodiless(c.status):
		return 0, http.ErrBodyNotAllowed
	case c.lost > 0 || c.body.Len()+len(octets) > mostBuffered:
		c.lost += int64(len(octets))
		return 0, fmt.Errorf("httpkey: a response is buffered until COMMIT and may have at most %d bytes", mostBuffered)
	}
	return c.body.Write(octets)
}

func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// end completes the response. Later writes fail with ErrSealed.
func (c *recording) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(http.StatusOK)
	c.sealed = true
	_, typed := c.final["Content-Type"]
	if _, encoded := c.final["Content-Encoding"]; !typed && !encoded && c.body.Len() > 0 {
		c.final.Set("Content-Type", http.DetectContentType(c.body.Bytes()))
	}
}

// reopen resets the response to an earlier state, for another run of the handler.
func (c *recording) reopen(header http.Header, status int, length int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.header)
	maps.Copy(c.header, header.Clone())
	c.sealed, c.status, c.lost = false, status, 0
	c.body.Truncate(length)
}

func (c *recording) wasLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// A notFinalError is the failure of an attempt whose status is not final.
type notFinalError struct{ status int }

func (p *notFinalError) Error() string { return fmt.Sprintf("the handler answered %d", p.status) }

// answer returns the answer or the failure that the command ends with.
func (c *recording) answer(failure error) (command.Answer, error) {
	c.end()
	if failure != nil {
		return command.Answer{}, failure
	}
	final, err := callback.Get("Options.Final", func() bool { return c.options.Final(c.status) })
	switch {
	case err != nil:
		return command.Answer{}, err
	case !final:
		return command.Answer{}, &notFinalError{c.status}
	}
	return c.stored(), nil
}

// stored returns the storable headers, and the body unless the response exceeds MaxResponse.
func (c *recording) stored() command.Answer {
	headers, size := map[string][]string{}, c.body.Len()
	for _, name := range c.options.Headers {
		for _, v := range c.final[name] {
			if storable(v) {
				headers[name] = append(headers[name], v)
				size += len(name) + len(v)
			}
		}
	}
	response := &command.Response{Status: c.status, Headers: headers, Body: c.body.Bytes()}
	if size <= c.options.MaxResponse && c.lost == 0 {
		return command.Answer{Response: response}
	}
	return command.Answer{Result: tombstone{int64(c.body.Len()) + c.lost}.text(),
		Response: &command.Response{Status: c.status, Headers: spare(headers)}}
}

// storable reports whether a header value can be stored as JSON in the database.
func storable(v string) bool {
	return utf8.ValidString(v) && strings.IndexFunc(v, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }) < 0
}

// spare returns the short headers that do not describe the body.
func spare(headers map[string][]string) map[string][]string {
	kept := map[string][]string{}
	for _, name := range []string{"Location", "Content-Location"} {
		if v := headers[name]; len(v) == 1 && len(v[0]) < 8192 {
			kept[name] = v
		}
	}
	return kept
}

// A tombstone replaces a body that was not stored.
type tombstone struct {
	Octets int64 `json:"omitted_octets"`
}

func (t tombstone) text() []byte {
	text, _ := json.Marshal(t) // cannot fail for a number
	return text
}

// send writes the response as the handler made it.
func (c *recording) send(w http.ResponseWriter) {
	if c.lost > 0 {
		omitted(c.stored().Response).write(w)
		return
	}
	send(w, c.status, c.final, c.body.Bytes())
}

func send(w http.ResponseWriter, status int, headers http.Header, body []byte) {
	maps.Copy(w.Header(), headers)
	w.Header().Del("Content-Length")
	if !bodiless(status) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error needs no handling: a retry gets the same response
}
