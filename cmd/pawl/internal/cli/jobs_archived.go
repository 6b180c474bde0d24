package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/ops"
)

func archivedText(j ops.ArchivedJob) string {
	var out strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&out, "job %d, from the archive\n", j.ID)
	field("queue", "%s", visible(j.Queue))
	field("kind", "%s", visible(j.Kind))
	if j.Lane != "" {
		field("lane", "%s", visible(j.Lane))
	}
	field("finished", "%s", when(j.FinishedAt, j.ReadAt))
	field("attempts", "%d, %d crashes", j.Attempts, j.Crashes)
	field("priority", "%d", j.Priority)
	field("fence", "%d", j.Fence)
	field("created", "%s", when(j.CreatedAt, j.ReadAt))
	if headers, err := json.Marshal(j.Headers); err == nil && j.Headers != nil {
		field("headers", "%s", visible(string(headers)))
	}
	field("payload", "%d octets, SHA-256 %x", len(j.Args), sha256.Sum256(j.Args))
	for _, line := range payloadLines(j.Args) {
		fmt.Fprintf(&out, "    %s\n", line)
	}
	return out.String()
}

type archivedJSON struct {
	ID         int64          `json:"id"`
	Queue      string         `json:"queue"`
	Kind       string         `json:"kind"`
	Lane       *string        `json:"lane"`     // null: it was in none
	Position   *int64         `json:"position"` // in the lane
	Priority   int            `json:"priority"`
	Attempts   int            `json:"attempts"`
	Crashes    int            `json:"crashes"`
	Fence      int64          `json:"fence"`
	CreatedAt  time.Time      `json:"created_at"`
	FinishedAt time.Time      `json:"finished_at"`
	Headers    map[string]any `json:"headers"`
	Args       argsJSON       `json:"args"`
}

func archivedToJSON(j ops.ArchivedJob) archivedJSON {
	out := archivedJSON{ID: j.ID, Queue: j.Queue, Kind: j.Kind, Lane: given(j.Lane), Position: given(j.Position), Priority: j.Priority,
		Attempts: j.Attempts, Crashes: j.Crashes, Fence: j.Fence, CreatedAt: j.CreatedAt.UTC(), FinishedAt: j.FinishedAt.UTC(),
		Headers: j.Headers, Args: payloadToJSON(j.Args)}
	if out.Headers == nil {
		out.Headers = map[string]any{}
	}
	return out
}

func payloadToJSON(args []byte) argsJSON {
	sum := sha256.Sum256(args)
	out := argsJSON{Octets: len(args), SHA256: hex.EncodeToString(sum[:]), Base64: args}
	if text := string(args); utf8.ValidString(text) {
		out.Text = &text
	}
	return out
}
