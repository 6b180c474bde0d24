package wireproxy

import (
	"bufio"
	"context"
	"net"
	"sync"
)

// Frames is a proxy that takes a protocol apart into frames, and forwards those that it is told to
// forward, when it is told to.
type Frames struct {
	listener net.Listener
	upstream string
	read     func(*bufio.Reader) ([]byte, error)
	begin    func(*Link) (up, down func(frame []byte))

	mu    sync.Mutex
	links map[*Link]bool
}

// A Link is one connection through a proxy. Its methods may be called at once, and do nothing once
// the connection is gone.
type Link struct {
	client, server     net.Conn
	toClient, toServer sync.Mutex
}

// ToClient sends a frame to the client, ToServer to the server.
func (l *Link) ToClient(frame []byte) { write(&l.toClient, l.client, frame) }

// ToServer is explained at ToClient.
func (l *Link) ToServer(frame []byte) { write(&l.toServer, l.server, frame) }

func write(turn *sync.Mutex, to net.Conn, frame []byte) {
	turn.Lock()
	defer turn.Unlock()
	_, _ = to.Write(frame)
}

// ListenFrames runs a proxy in front of upstream, host:port, until Close. read reads one frame from
// either side. begin is called for each connection; what it returns is called with each frame from
// the client and from the server, and forwards it or not.
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

// Addr is where the proxy listens.
func (p *Frames) Addr() string { return p.listener.Addr().String() }

// Cut closes the connections that are open. New ones may be made.
func (p *Frames) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_, _ = l.client.Close(), l.server.Close()
	}
}

// Close takes no more connections, and closes those that are open.
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

// pump reads the frames of one side, until either side is gone.
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
