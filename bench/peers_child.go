package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A child is a process of node/peer.mjs: one library on one database. It ends when its stdin does, so it does not outlive this process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	task    task // its started and ended get the child's reports
	calls   int
	waiting map[int]chan childLine
	over    error // why no reply will come any more
}

// childLine is a reply, if it has an ID, or a report.
type childLine struct {
	ID      int             `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   string          `json:"error"`
	Ended   int             `json:"ended"`
	Started int64           `json:"started"` // nanoseconds since it was enqueued
}

func startChild(ctx context.Context, library, options, url string) (*child, error) {
	home, err := installNode()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, home.node, home.script, library, options), waiting: map[int]chan childLine{}}
	c.cmd.Env = append(os.Environ(), frozenURL+"="+url, "NO_LOG_SUCCESS=1")
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	go c.listen(out)
	return c, nil
}

// listen hands out what the child says until it ends.
func (c *child) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line childLine
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err != nil:
			fmt.Fprintln(os.Stderr, lines.Text()) // a library's own words
		case line.ID > 0:
			c.answer(line)
		case line.Ended > 0:
			c.doing().ended(line.Ended)
		case line.Started > 0:
			c.doing().started(payload{At: time.Now().UnixNano() - line.Started}) // without the line's way to here
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = errors.New("the process of the peer has ended")
	for _, reply := range c.waiting {
		close(reply)
	}
}

// doing is the task that the child works on; it reports nothing before it has one.
func (c *child) doing() task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

// work starts workers in the child. With hold, its handlers take their time.
func (c *child) work(ctx context.Context, t task, hold bool) error {
	c.mu.Lock()
	c.task = t
	c.mu.Unlock()
	form := "noop"
	if t.form == effect {
		form = "effect"
	}
	return c.call(ctx, "work", map[string]any{"form": form, "polite": t.polite, "started": t.started != nil, "hold": hold}, nil)
}

func (c *child) answer(line childLine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply, ok := c.waiting[line.ID]; ok {
		reply <- line
		delete(c.waiting, line.ID)
	}
}

// call sends a request and waits for its reply, which it puts into result if that is not nil.
func (c *child) call(ctx context.Context, name string, args map[string]any, result any) error {
	reply, err := c.send(name, args)
	if err != nil {
		return err
	}
	select {
	case line, ok := <-reply:
		switch {
		case !ok:
			return errors.New("the process of the peer has ended")
		case line.Error != "":
			return errors.New(line.Error)
		case result != nil:
			return json.Unmarshal(line.Result, result)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *child) send(name string, args map[string]any) (chan childLine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	c.calls++
	line := map[string]any{"id": c.calls, "call": name}
	for k, v := range args {
		line[k] = v
	}
	text, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	reply := make(chan childLine, 1)
	c.waiting[c.calls] = reply
	_, err = c.in.Write(append(text, '\n'))
	return reply, err
}

// end closes the child's stdin and waits for it.
func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}
