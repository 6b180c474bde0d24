package wireproxy

import (
	"bufio"
	"context"
	"net"
	"sync"
)

// Frames is a proxy that splits a protocol into frames. A callback decides whether and when to
// forward each frame.
type Frames struct {
	listener net.Listener
	upstream string
	read     func(*bufio.Reader) ([]byte, error)
	begin    func(*Link) (up, down func(frame []byte))

	mu    sync.Mutex
	links map[*Link]bool
}

// A Link is one connection through a proxy. Its methods are safe for concurrent use. They do
// nothing once the connection is closed.
type Link struct {
	client, server     net.Conn
	toClient, toServer sync.Mutex
}

// ToClient sends a frame to the client.
func (l *Link) ToClient(frame []byte) { write(&l.toClient, l.client, frame) }

// ToServer sends a frame to the server.
func (l *Link) ToServer(frame []byte) { write(&l.toServer, l.server, frame) }

func write(turn *sync.Mutex, to net.Conn, frame []byte) {
	turn.Lock()
	defer turn.Unlock()
	_, _ = to.Write(frame)
}

// ListenFrames runs a proxy in front of upstream, host:port, until Close. read reads one frame from
// either side. begin is called for each connection. Its results are called with each frame from the
// client (up) and from the server (down), and decide whether to forward it.
func ListenFrames(upstream string, read func(*bufio.Reader) ([]byte, error), begin func(*Link) (up, down func(frame []byte))) (*Frames, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Frames{listener: l, upstream: upstream, read: read, begin: begin, links: map[*Link]bool{}}
	go p.accept()
	return p, nil
}

// Addr returns the address of the proxy.
func (p *Frames) Addr() string { return p.listener.Addr().String() }

// Cut closes the open connections. New ones are accepted.
func (p *Frames) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_, _ = l.client.Close(), l.server.Close()
	}
}

// Close stops accepting connections and closes the open ones.
func (p *Frames) Close() {
	_ = p.listener.Close()
	p.Cut()
}

func (p *Frames) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &Link{client: client, server: server}
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		up, down := p.begin(l)
		go p.pump(l, client, up)
		go p.pump(l, server, down)
	}
}

// pump reads the frames of one side until either side closes.
func (p *Frames) pump(l *Link, from net.Conn, each func([]byte)) {
	defer func() {
		_, _ = l.client.Close(), l.server.Close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	for r := bufio.NewReaderSize(from, 64<<10); ; {
		frame, err := p.read(r)
		if err != nil {
			return
		}
		each(frame)
	}
}
