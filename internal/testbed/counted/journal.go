package counted

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
)

// An entry is one thing that a worker process saw. Each is a line on its standard output at once: what a process keeps in memory dies with it.
type entry struct {
	What     string    `json:"w"` // see below, or the kind of an event
	At       time.Time `json:"t"`
	PID      int       `json:"p"`
	Key      string    `json:"k,omitempty"` // of the order, else of the message
	Lane     string    `json:"l,omitempty"`
	Number   int       `json:"n,omitempty"`
	ID       string    `json:"i,omitempty"` // the MessageID
	Receives int       `json:"r,omitempty"`
	Log      string    `json:"g,omitempty"`
	Offset   int64     `json:"o,omitempty"`
	Count    int       `json:"c,omitempty"`
	Text     string    `json:"e,omitempty"`
}

// What an entry tells of a delivery.
const (
	received     = "received"
	acknowledged = "acknowledged" // the source has taken the receipt
	released     = "released"
	swallowed    = "swallowed" // a receipt that the run lost
	cutOff       = "cut off"   // a received delivery that the run lost
)

// A journal writes entries.
type journal struct {
	mu  sync.Mutex
	out io.Writer
}

// write writes entries in one call.
func (j *journal) write(es ...entry) {
	var text bytes.Buffer
	encode := json.NewEncoder(&text)
	for _, e := range es {
		e.PID, e.At = os.Getpid(), time.Now()
		_ = encode.Encode(e) // to memory: cannot fail
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.out.Write(text.Bytes()) // if the tests are gone, so are we soon
}
