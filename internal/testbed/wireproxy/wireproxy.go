// Package wireproxy stands between a client and PostgreSQL and cuts the connection at a chosen moment of COMMIT (or
// of another statement), which no byte-blind proxy can aim at. For tests and the crash lab only.
package wireproxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A Cut says what the next COMMIT (or other target) meets.
type Cut int

// The two worlds a client cannot tell apart.
const (
	Pass        Cut = iota // nothing happens
	BeforeSend             // the server never sees the COMMIT: it rolls back
	BeforeReply            // the server commits; the reply is lost
)

// A Proxy forwards one server's traffic.
type Proxy struct {
	listener net.Listener
	network  string
	upstream string
	dir      string // of our own socket; "" if we listen on a port

	mu   sync.Mutex
	aim  func(sent []byte) bool
	next func() Cut // asked once a hit
	cuts int
	thaw chan struct{} // closed when octets flow again; nil while they do
}

// Freeze holds back every octet, of connections that are open and of new ones, in both directions, until the function it returns is called:
// what a network looks like that drops packets in silence.
func (p *Proxy) Freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw == nil {
		p.thaw = make(chan struct{})
	}
	frozen := p.thaw
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(frozen)
		p.thaw = nil
	})
}

// flow waits while the proxy is frozen.
func (p *Proxy) flow() {
	p.mu.Lock()
	frozen := p.thaw
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// A TB is what Start needs of a test.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(fn func())
}

// Start runs a proxy in front of the database that rawURL names until the test ends, and returns it
// with the URL to use instead: see [Open].
func Start(tb TB, rawURL string) (*Proxy, string) {
	tb.Helper()
	p, through, err := Open(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p, through
}

// Open runs a proxy in front of the database that rawURL names until Close, and returns it with the
// URL to use instead. In front of a Unix socket it listens on one itself, in a directory that only
// this user can enter: a server on a Unix socket may trust all who reach it, so a port of the proxy
// would open that server to each user of the machine.
func Open(rawURL string) (*Proxy, string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", err
	}
	p := &Proxy{aim: isCommit, next: func() Cut { return Pass }}
	p.network, p.upstream = "tcp", u.Host
	listenAt := "127.0.0.1:0"
	q := u.Query()
	if dir := q.Get("host"); dir != "" {
		p.network, p.upstream = "unix", socketIn(dir, cmp.Or(q.Get("port"), defaultPort))
		if p.dir, err = os.MkdirTemp(parent(), "pawl-proxy-"); err != nil { // mode 0700
			return nil, "", err
		}
		listenAt = socketIn(p.dir, defaultPort)
		q.Set("host", p.dir)
		q.Set("port", defaultPort)
	}
	var listen net.ListenConfig
	if p.listener, err = listen.Listen(context.Background(), p.network, listenAt); err != nil {
		p.removeDir()
		return nil, "", err
	}
	if p.network == "tcp" {
		u.Host = p.listener.Addr().String()
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // pgx reads a + as itself
	go p.accept()
	return p, u.String(), nil
}

const defaultPort = "5432"

// socketIn is where a server that has a port listens in a directory.
func socketIn(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// parent is where the directory of a socket goes. The path of a socket is short: 103 octets on
// macOS.
func parent() string {
	const longest = 60
	if dir := os.TempDir(); len(dir) <= longest {
		return dir
	}
	return "/tmp"
}

func (p *Proxy) removeDir() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// Listen runs a proxy that has no upstream yet, until Close, and returns it with its address. For any protocol over TCP: see [Proxy.Redirect].
func Listen() (*Proxy, string, error) {
	p, through, err := Open("tcp://127.0.0.1:1")
	if err != nil {
		return nil, "", err
	}
	u, err := url.Parse(through)
	return p, u.Host, err
}

// Redirect sends the connections that are made from now on to another server, host:port.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.upstream = "tcp", upstream
}

// Close takes no more connections. Those that are open stay.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.removeDir()
}

// OnCommit decides the fate of each COMMIT from now on; nil lets all pass.
func (p *Proxy) OnCommit(next func() Cut) {
	if next == nil {
		next = func() Cut { return Pass }
	}
	p.mu.Lock()
	p.next = next
	p.mu.Unlock()
}

// Aim makes the fate of another statement than COMMIT be decided: of what the client sends in one go, if aim says so.
func (p *Proxy) Aim(aim func(sent []byte) bool) {
	p.mu.Lock()
	p.aim = aim
	p.mu.Unlock()
}

// Executes returns an aim at the execution, not the preparation, of extended-protocol statements that contain text. Use
// it with default_query_exec_mode=cache_describe, where the text travels along every time.
func Executes(text string) func([]byte) bool {
	return func(sent []byte) bool {
		return bytes.Contains(sent, []byte(text)) && bytes.Contains(sent, []byte("E\x00\x00\x00\x09\x00"))
	}
}

// Cuts returns how many statements were cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) fate(sent []byte) Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.aim(sent) {
		return Pass
	}
	cut := p.next()
	if cut != Pass {
		p.cuts++
	}
	return cut
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		network, upstream := p.network, p.upstream
		p.mu.Unlock()
		server, err := net.Dial(network, upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		go p.forward(client, server)
	}
}

// forward copies client to server and watches for COMMIT; a second goroutine copies back.
func (p *Proxy) forward(client, server net.Conn) {
	var mute sync.Once // closed when replies must not reach the client any more
	muted := make(chan struct{})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			p.flow()
			select {
			case <-muted:
				return // one read after the COMMIT: the server has answered it
			default:
			}
			if n > 0 {
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		p.flow()
		if n > 0 {
			switch p.fate(buffer[:n]) {
			case BeforeSend:
				_ = client.Close()
				return
			case BeforeReply:
				mute.Do(func() { close(muted) })
				_, _ = server.Write(buffer[:n])
				<-answered
				return
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// isCommit recognises the simple query 'commit', the form pgx's Tx.Commit sends, and the statement among others in a
// pipeline.
func isCommit(b []byte) bool {
	return len(b) > 5 && b[0] == 'Q' && bytes.EqualFold(b[5:], []byte("commit\x00")) || binds(b, "commit")
}

// binds reports whether b holds a Bind message ('B', four octets of length, no portal) for the statement that pgx has
// prepared under a name made from its text.
func binds(b []byte, text string) bool {
	digest := sha256.Sum256([]byte(text))
	at := bytes.Index(b, fmt.Appendf(nil, "\x00stmtcache_%x\x00", digest[:24]))
	return at >= 5 && b[at-5] == 'B'
}
