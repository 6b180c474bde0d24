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

// A recording is the response of a handler, kept back until COMMIT. It behaves as net/http's: no status means 200, the second
// is ignored, headers count when the status is written. It cannot stream: see FlushError and Hijack.
type recording struct {
	options *Options
	fence   int64 // of the attempt

	mu     sync.Mutex
	header http.Header
	final  http.Header // as of the status
	status int
	body   bytes.Buffer
	lost   int64 // octets beyond mostBuffered
	sealed bool  // stored, or the handler has returned
	late   bool  // written to after that
}

// ErrSealed is returned by a Write that comes too late: the response is stored, or the handler has returned.
var ErrSealed = errors.New("httpkey: the response is sealed; write it before Commit")

// errStreaming is a clear no to what cannot be.
var errStreaming = fmt.Errorf("httpkey: the response is sent after COMMIT and cannot be streamed: %w", errors.ErrUnsupported)

func newRecording(p *Options, fence int64) *recording {
	return &recording{options: p, fence: fence, header: http.Header{}}
}

// FlushError is what [http.ResponseController.Flush] calls.
func (*recording) FlushError() error { return errStreaming }

// Hijack refuses, as [http.Hijacker].
func (*recording) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errStreaming }

func (c *recording) Header() http.Header { return c.header }

func (c *recording) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpkey: %d is no status", status))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		c.late = true
		return
	}
	if status >= 200 {
		c.begin(status) // a provisional one would have to leave before COMMIT
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
		return 0, fmt.Errorf("httpkey: a response is kept back until COMMIT, and may have %d octets", mostBuffered)
	}
	return c.body.Write(octets)
}

func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// end completes the response; whatever is written from now on is late.
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

// reopen takes back what was written since a copy was made, for another run.
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

// A notFinalError is the failure of an attempt whose handler answered with a status that is not final.
type notFinalError struct{ status int }

func (p *notFinalError) Error() string { return fmt.Sprintf("the handler answered %d", p.status) }

// answer makes of a handler's end what the command ends with.
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

// stored is what is kept: the headers that may be given again, and the body if it is not too long.
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

// storable values survive as JSON in the database.
func storable(v string) bool {
	return utf8.ValidString(v) && strings.IndexFunc(v, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }) < 0
}

// spare keeps of the headers what does not describe the body, if it is short.
func spare(headers map[string][]string) map[string][]string {
	kept := map[string][]string{}
	for _, name := range []string{"Location", "Content-Location"} {
		if v := headers[name]; len(v) == 1 && len(v[0]) < 8192 {
			kept[name] = v
		}
	}
	return kept
}

// A tombstone stands for a body that was not kept.
type tombstone struct {
	Octets int64 `json:"omitted_octets"`
}

func (t tombstone) text() []byte {
	text, _ := json.Marshal(t) // a number always can
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
	_, _ = w.Write(body) // a caller who left is none of our business: whoever asks again gets the same
}
