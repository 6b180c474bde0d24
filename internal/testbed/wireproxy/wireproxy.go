// Package wireproxy is a proxy between a client and PostgreSQL. It cuts the connection at a chosen
// moment of COMMIT or another statement, which needs knowledge of the protocol. For tests and the
// crash lab only.
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

// A Cut says what happens to the next COMMIT or other targeted statement.
type Cut int

// BeforeSend and BeforeReply look the same to a client. HoldReply does too, once the server closes
// the connection.
const (
	Pass        Cut = iota // the statement is forwarded
	BeforeSend             // the server never receives the COMMIT and rolls back
	BeforeReply            // the server commits; the reply is lost
	HoldReply              // the server commits; the reply is held until the server disconnects
)

// A Proxy forwards the traffic of one server.
type Proxy struct {
	listener net.Listener
	network  string
	upstream string
	dir      string // of the proxy's own socket; "" if it listens on a port

	mu   sync.Mutex
	aim  func(sent []byte) bool
	next func() Cut // called once per targeted statement
	cuts int
	open int           // number of connections
	thaw chan struct{} // closed when traffic resumes; nil while it flows
}

// Freeze stops all traffic in both directions, on open and new connections, until thaw is called.
// It simulates a network that drops packets silently.
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

// A TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(fn func())
}

// Start runs a proxy in front of the database of rawURL until the test ends. It returns the proxy
// and the URL to use instead: see [Open].
func Start(tb TB, rawURL string) (*Proxy, string) {
	tb.Helper()
	p, through, err := Open(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p, through
}

// Open runs a proxy in front of the database of rawURL until Close. It returns the proxy and the
// URL to use instead.
//
// If the server listens on a Unix socket, so does the proxy, in a directory that only this user can
// enter. A server on a Unix socket may trust all who reach it. A port of the proxy would open that
// server to every user of the machine.
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
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // pgx does not decode a +
	go p.accept()
	return p, u.String(), nil
}

const defaultPort = "5432"

// socketIn returns the socket's path of a server with a port in a directory.
func socketIn(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }

// parent returns the parent of the socket's directory. A socket's path is limited to 103 octets on
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

// Listen runs a proxy without an upstream until Close, and returns it with its address. It works
// for any protocol over TCP: see [Proxy.Redirect].
func Listen() (*Proxy, string, error) {
	p, through, err := Open("tcp://127.0.0.1:1")
	if err != nil {
		return nil, "", err
	}
	u, err := url.Parse(through)
	return p, u.Host, err
}

// Redirect forwards new connections to another server, host:port.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.upstream = "tcp", upstream
}

// Close stops accepting connections. Open ones stay.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.removeDir()
}

// OnCommit calls next for each COMMIT from now on. If next is nil, all pass.
func (p *Proxy) OnCommit(next func() Cut) {
	if next == nil {
		next = func() Cut { return Pass }
	}
	p.mu.Lock()
	p.next = next
	p.mu.Unlock()
}

// Aim targets another statement than COMMIT. aim gets the data of each read from the client and
// reports whether to target it.
func (p *Proxy) Aim(aim func(sent []byte) bool) {
	p.mu.Lock()
	p.aim = aim
	p.mu.Unlock()
}

// Executes returns an aim for executions, not preparations, of extended-protocol statements that
// contain text. Use it with default_query_exec_mode=cache_describe, which sends the text with every
// execution.
func Executes(text string) func([]byte) bool {
	return func(sent []byte) bool {
		return bytes.Contains(sent, []byte(text)) && bytes.Contains(sent, []byte("E\x00\x00\x00\x09\x00"))
	}
}

// Cuts returns the number of cut statements.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *Proxy) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
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

// forward copies client to server and looks for targeted statements. A second goroutine copies
// replies back.
func (p *Proxy) forward(client, server net.Conn) {
	p.count(1)
	defer p.count(-1)
	var mute sync.Once // closes muted when the client must get no more replies
	muted := make(chan struct{})
	holds := false // read after muted is closed
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
				if holds && err == nil {
					continue
				}
				return // this read follows the COMMIT, so the server has answered it
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
			switch cut := p.fate(buffer[:n]); cut {
			case BeforeSend:
				_ = client.Close()
				return
			case BeforeReply, HoldReply:
				mute.Do(func() { holds = cut == HoldReply; close(muted) })
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

// isCommit recognises COMMIT as the simple query 'commit', which pgx's Tx.Commit sends, and as a
// prepared statement in a pipeline.
func isCommit(b []byte) bool {
	return len(b) > 5 && b[0] == 'Q' && bytes.EqualFold(b[5:], []byte("commit\x00")) || binds(b, "commit")
}

// binds reports whether b contains a Bind message ('B', four octets of length, no portal) for a
// statement that pgx has prepared. pgx derives the statement's name from its text.
func binds(b []byte, text string) bool {
	digest := sha256.Sum256([]byte(text))
	at := bytes.Index(b, fmt.Appendf(nil, "\x00stmtcache_%x\x00", digest[:24]))
	return at >= 5 && b[at-5] == 'B'
}
