package integration_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A proxy stands between a process and its server and cuts the wire or holds replies back.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex // guards the fields below
	mode    proxyMode
	conns   map[net.Conn]bool
	changed chan struct{} // closed when mode changes
	held    int           // replies that were held back
	loops   sync.WaitGroup
}

type proxyMode int

const (
	passing  proxyMode = iota
	cut                // connections are broken, new ones too
	stalling           // requests pass, replies do not
)

// newProxy listens until the end of the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	p.loops.Go(p.serve) // ends with the listener
	t.Cleanup(func() {
		_ = l.Close() // ends serve
		p.set(cut)
		p.loops.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, server) {
			continue
		}
		p.loops.Go(func() { // both end with either connection
			_, _ = io.Copy(server, client)
			p.remove(client, server)
		})
		p.loops.Go(func() {
			p.replies(client, server)
			p.remove(client, server)
		})
	}
}

// replies copies what the server says, while it may be heard.
func (p *proxy) replies(client, server net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil || !p.pass() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass waits while replies are held back, and reports whether the wire still is whole.
func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == stalling {
		p.held++
	}
	for p.mode == stalling {
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
	return p.mode == passing
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.mode == cut {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.mode != cut
}

func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) set(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	close(p.changed)
	p.changed = make(chan struct{})
	if mode == cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// heldBack returns how many replies were held back.
func (p *proxy) heldBack() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// uri returns a connection string through the proxy.
func (p *proxy) uri() string {
	return "mongodb://" + p.listener.Addr().String() + "/?directConnection=true"
}

// through puts a proxy before the deployment's primary. A deployment that this program did not
// start is skipped if it can be reached in more ways than one address.
func (d *deployment) through(t testing.TB) *proxy {
	t.Helper()
	u, err := url.Parse(d.uri)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	switch {
	case d.set != nil:
		primary, err := d.set.Primary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		target = d.set.Addr(primary)
	case strings.Contains(target, ",") || u.User != nil || u.Scheme != "mongodb":
		t.Skipf("%s: its connection string cannot be led through a proxy", d.name)
	}
	return newProxy(t, target)
}
