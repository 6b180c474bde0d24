//go:build proof

package pawlnats_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/wireproxy"
	"github.com/pawl-go/pawl/transport/pawlnats"
	"github.com/pawl-go/pawl/transport/transporttest"
)

// Confirmations reach their messages in any order. A proxy delays JetStream's confirmations.
func TestSink_Answers(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	transporttest.RunSink(t, transporttest.Destination{Open: func(t *testing.T, a *transporttest.Responses) transporttest.Outlet {
		f := setup(t, options{server: server, stream: jetstream.StreamConfig{Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1}})
		full := f.stream + ".full" // a subject that already holds its one message
		_, err := f.js.Publish(t.Context(), full, nil)
		f.must(err)
		proxy, err := wireproxy.ListenFrames(server.Addr(), readOp, func(l *wireproxy.Link) (up, down func([]byte)) {
			w := &wire{link: l, answers: a, ids: map[string]string{}}
			return w.up, w.down
		})
		f.must(err)
		t.Cleanup(proxy.Close)
		js := connect(t, proxy.Addr(), nats.ReconnectWait(10*time.Millisecond))
		sink, err := pawlnats.OpenSink(t.Context(), js, f.stream, pawlnats.SinkConfig{SubjectOf: func(m pawl.Message) string {
			if m.Type == "refused" {
				return full
			}
			return f.stream + ".events." + m.ID
		}})
		f.must(err)
		return transporttest.Outlet{Sink: sink, Cut: proxy.Cut, Refused: func(m pawl.Message) pawl.Message {
			m.Type = "refused"
			return m
		}}
	}})
}

// readOp reads a NATS protocol line and its payload.
func readOp(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	size := 0
	switch words := bytes.Fields(line); string(bytes.ToUpper(words[0])) {
	case "PUB", "HPUB", "MSG", "HMSG":
		if size, err = strconv.Atoi(string(words[len(words)-1])); err != nil {
			return nil, err
		}
		size += len("\r\n")
	}
	payload := make([]byte, size)
	_, err = io.ReadFull(r, payload)
	return append(line, payload...), err
}

// A wire observes a connection, and holds confirmations until the test releases them.
type wire struct {
	link    *wireproxy.Link
	answers *transporttest.Responses

	mu  sync.Mutex
	ids map[string]string // ids of messages without a confirmation, by reply subject
}

func (w *wire) up(op []byte) {
	words := strings.Fields(string(op[:bytes.IndexByte(op, '\n')]))
	_, after, carries := bytes.Cut(op, []byte(jetstream.MsgIDHeader+": "))
	if words[0] == "HPUB" && len(words) == 5 && carries {
		id, _, _ := bytes.Cut(after, []byte("\r\n"))
		w.mu.Lock()
		w.ids[words[2]] = string(id)
		w.mu.Unlock()
		w.answers.Arrived()
	}
	w.link.ToServer(op)
}

func (w *wire) down(op []byte) {
	words := strings.Fields(string(op[:bytes.IndexByte(op, '\n')]))
	w.mu.Lock()
	id := ""
	if len(words) > 1 {
		id = w.ids[words[1]]
		delete(w.ids, words[1])
	}
	w.mu.Unlock()
	if id == "" {
		w.link.ToClient(op)
		return
	}
	var said jetstream.PubAck
	confirmed := []string{id}
	if json.Unmarshal(op[bytes.IndexByte(op, '\n')+1:], &said) != nil || said.Sequence == 0 {
		confirmed = nil
	}
	w.answers.Send([]string{id}, confirmed, func() { w.link.ToClient(op) })
}
