//go:build proof

package hatest

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// A forwarder forwards TCP connections to a local port. While it is stopped, it neither forwards
// nor closes anything, like a network that drops packets.
type forwarder struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	moving *sync.Cond
	stop   bool
	held   []byte // connections that begin with this are not forwarded; nil: none
}

func forward(t *testing.T, to int) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(freePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &forwarder{listener: l, to: "127.0.0.1:" + strconv.Itoa(to)}
	f.moving = sync.NewCond(&f.mu)
	go f.accept()
	return f
}

func (f *forwarder) port() int    { return f.listener.Addr().(*net.TCPAddr).Port }
func (f *forwarder) addr() string { return f.listener.Addr().String() }

// freeze stops forwarding. thaw resumes it with the held data.
func (f *forwarder) freeze() { f.set(func() { f.stop = true }) }
func (f *forwarder) thaw()   { f.set(func() { f.stop, f.held = false, nil }) }

// hold does not forward new connections that begin with prefix.
func (f *forwarder) hold(prefix string) { f.set(func() { f.held = []byte(prefix) }) }

func (f *forwarder) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.moving.Broadcast()
}

// flow waits until data may pass. first is the first data of a connection, or nil.
func (f *forwarder) flow(first []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.stop || f.held != nil && bytes.HasPrefix(first, f.held) {
		f.moving.Wait()
	}
}

func (f *forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.serve(client)
	}
}

func (f *forwarder) serve(client net.Conn) {
	defer client.Close()
	f.flow(nil)
	server, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2)
	go f.copy(server, client, true, done)
	go f.copy(client, server, false, done)
	<-done
}

// copy ends with the first error of either side. It passes the error on only while data may pass.
func (f *forwarder) copy(to io.Writer, from io.Reader, asks bool, done chan<- struct{}) {
	buffer := make([]byte, 32<<10)
	for first := asks; ; first = false {
		n, err := from.Read(buffer)
		if first {
			f.flow(buffer[:n])
		} else {
			f.flow(nil)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	done <- struct{}{}
}
