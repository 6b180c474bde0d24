package pawltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
)

// A wire is one connection of a [process] to PostgreSQL, inside of TLS. It reads which statements
// are sent, and can drop a request or a reply.
type wire struct {
	net.Conn
	process *process

	mu sync.Mutex
	// started: the startup message, which has no type, was sent.
	started bool
	watched bool              // its statements are points to die at
	lent    bool              // watched until its transaction ends
	texts   map[string]string // of prepared statements, by name
	losing  fate              // of the awaited reply
	tail    []byte            // the server's last octets
}

var errCut = errors.New("pawltest: the connection was cut")

// watch makes the wire's statements points to die at, until its transaction ends.
func (w *wire) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched, w.lent = true, true
}

func (w *wire) Write(b []byte) (int, error) {
	fate := w.fateOf(b)
	w.process.await()
	switch fate {
	case diesBefore:
		w.process.die()
		return 0, errCut
	case diesAfter, losesReply:
		w.mu.Lock()
		w.losing = fate
		w.mu.Unlock()
	}
	return w.Conn.Write(b)
}

func (w *wire) fateOf(b []byte) fate {
	w.mu.Lock()
	text := w.executed(b)
	watched := w.watched
	w.mu.Unlock()
	if text == "" || !watched {
		return goesOn
	}
	return w.process.statement(text)
}

// executed returns the statements that b executes; "" for a prepare or a copy. The caller holds mu.
func (w *wire) executed(b []byte) string {
	if !w.started {
		w.started = true
		return ""
	}
	var texts []string
	var bound string
	for len(b) >= 5 {
		end := 1 + int(binary.BigEndian.Uint32(b[1:5]))
		if end < 5 || end > len(b) {
			break
		}
		switch body := b[5:end]; b[0] {
		case 'Q':
			texts = append(texts, field(body, 0))
		case 'P':
			w.texts[field(body, 0)] = field(body, 1)
		case 'B':
			bound = w.texts[field(body, 1)]
		case 'E':
			texts = append(texts, bound)
		}
		b = b[end:]
	}
	return strings.Join(texts, "; ")
}

// field returns the nth of several zero-terminated strings.
func field(b []byte, n int) string {
	for ; n > 0; n-- {
		_, b, _ = bytes.Cut(b, []byte{0})
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// Read drops a lost reply only when it is complete, so that the server has executed the statement.
func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		lost, complete := w.heard(b[:n])
		switch {
		case lost == goesOn:
			return n, err
		case err == nil && !complete:
			continue
		case lost == diesAfter:
			w.process.die()
		}
		_ = w.Close()
		return 0, errCut
	}
}

// heard returns the fate of a reply, and whether it is complete: the server is ready.
func (w *wire) heard(b []byte) (lost fate, complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, b[max(0, len(b)-6):]...)
	w.tail = w.tail[max(0, len(w.tail)-6):]
	complete = len(b) > 0 && bytes.HasPrefix(w.tail, []byte("Z\x00\x00\x00\x05"))
	if complete && w.lent && w.tail[5] == 'I' {
		w.watched, w.lent = false, false
	}
	return w.losing, complete
}

// Close closes the connection without a Terminate message.
func (w *wire) Close() error {
	w.process.forget(w)
	return w.Conn.Close()
}
