package counted

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
)

// An entry is an observation of a worker process. It is written to standard output at once, because
// memory is lost when the process is killed.
type entry struct {
	What     string    `json:"w"` // one of the constants below, or the kind of an event
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

// Values of entry.What for deliveries.
const (
	received     = "received"
	acknowledged = "acknowledged" // the source accepted the receipt
	released     = "released"
	swallowed    = "swallowed" // a receipt that the run dropped
	cutOff       = "cut off"   // a received delivery that the run dropped
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
		_ = encode.Encode(e) // cannot fail: it writes to memory
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.out.Write(text.Bytes()) // an error means that the tests have ended
}
