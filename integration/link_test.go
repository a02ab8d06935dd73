package integration_test

import (
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"mongodlm/internal/test/assert"
)

// A link is a proxy between a process and its server.
type link struct {
	listener net.Listener
	target   string
	loops    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	state   linkState
	changed chan struct{} // closed when the state changes
	stalled int           // the number of held back replies
	conns   map[net.Conn]bool
}

type linkState int

const (
	passing  linkState = iota
	cut                // existing and new connections are closed
	stalling           // requests pass, replies are held back
	silent             // connections stay open, sent data is lost
)

// newLink starts a link to target. The end of the test closes the link.
func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := &link{listener: listener, target: target, changed: make(chan struct{}),
		conns: map[net.Conn]bool{}}
	l.loops.Go(l.serve) // ends with the listener
	t.Cleanup(func() {
		_ = listener.Close() // ends serve
		l.set(cut)
		l.loops.Wait()
	})
	return l
}

// through returns a link to the deployment's primary. It skips the test if the connection string
// cannot be used through a proxy.
func (d *deployment) through(t testing.TB) *link {
	t.Helper()
	u := assert.Value(url.Parse(d.uri))(t)
	target := u.Host
	switch {
	case d.set != nil:
		primary := assert.Value(d.set.Primary(t.Context()))(t)
		target = d.set.Addr(primary)
	case strings.Contains(target, ",") || u.User != nil || u.Scheme != "mongodb":
		t.Skipf("%s: its connection string cannot use a proxy", d.name)
	}
	return newLink(t, target)
}

func (l *link) uri() string {
	return "mongodb://" + l.listener.Addr().String() + "/?directConnection=true"
}

func (l *link) set(state linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
	if state == cut {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

// mend makes the link work again. Replies that the link held back are lost.
func (l *link) mend() {
	l.set(cut)
	l.set(passing)
}

func (l *link) heldBack() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stalled
}

func (l *link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = true, true
		if l.state == cut {
			_, _ = client.Close(), server.Close()
		}
		l.mu.Unlock()
		end := func() {
			_, _ = client.Close(), server.Close()
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.conns, client)
			delete(l.conns, server)
		}
		l.loops.Go(func() { defer end(); l.carry(client, server, silent) }) // both end when one ends
		l.loops.Go(func() { defer end(); l.carry(server, client, stalling, silent) })
	}
}

// carry copies data from one connection to another until either ends. While the link has one of the
// given states, carry waits.
func (l *link) carry(from io.Reader, to io.Writer, states ...linkState) {
	for data := make([]byte, 64<<10); ; {
		n, err := from.Read(data)
		if err != nil || !l.pass(states...) {
			return
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

// pass waits while the link has one of the given states. It returns false if data is lost, because
// the link is cut or was silent.
func (l *link) pass(states ...linkState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := false
	for counted := false; slices.Contains(states, l.state); counted = true {
		if l.state == stalling && !counted {
			l.stalled++
		}
		lost = lost || l.state == silent
		changed := l.changed
		l.mu.Unlock()
		<-changed
		l.mu.Lock()
	}
	return !lost && l.state != cut
}
