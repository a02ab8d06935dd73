package integration_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
)

// A link is a proxy between a process and its server. It parses MongoDB's messages and can lose the
// replies from a given command on.
type link struct {
	listener net.Listener
	target   string
	loops    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	state   linkState
	changed chan struct{} // closed when the state changes
	stalled int           // the number of held back replies
	deafAt  string        // the operation whose next request makes the link deaf; empty for none
	conns   map[net.Conn]bool
}

// A linkState is the state of a whole link.
type linkState int

const (
	passing  linkState = iota
	cut                // existing and new connections are closed
	stalling           // requests pass, replies are held back
	silent             // connections stay open, sent data is lost
	deaf               // requests pass, the first reply closes the connection
	slowed             // replies are delayed by slowBy
	sliced             // messages pass byte by byte
)

const slowBy = 200 * time.Millisecond

// newLink starts a link to target. It ends with the test.
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

// through returns a link to the deployment's primary. If this program did not start the deployment,
// its connection string must have one host, no user and the scheme mongodb. Otherwise the test is
// skipped.
func (d *deployment) through(t testing.TB) *link {
	t.Helper()
	u := assert.Value(url.Parse(d.uri))(t)
	target := u.Host
	switch {
	case d.set != nil:
		primary := assert.Value(d.set.Primary(t.Context()))(t)
		target = d.set.Addr(primary)
	case strings.Contains(target, ",") || u.User != nil || u.Scheme != "mongodb":
		t.Skipf("%s: its connection string cannot be led through a proxy", d.name)
	}
	return newLink(t, target)
}

// uri returns a connection string through the link.
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

// deafFrom makes the link deaf at the next request of operation op, which still reaches the server.
// An empty op cancels this.
func (l *link) deafFrom(op string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deafAt = op
}

// heldBack returns the number of held back replies.
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
		l.loops.Go(func() { defer end(); l.requests(client, server) }) // both end when one ends
		l.loops.Go(func() { defer end(); l.replies(server, client) })
	}
}

func (l *link) requests(from io.Reader, to io.Writer) {
	for {
		m, err := readMessage(from)
		if err != nil || !l.pass(silent) {
			return
		}
		l.noteRequest(m)
		if l.write(to, m) != nil {
			return
		}
	}
}

// noteRequest makes the link deaf if a request has the operation given to deafFrom.
func (l *link) noteRequest(m []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deafAt != "" && operationOf(m) == l.deafAt {
		l.deafAt, l.state = "", deaf
	}
}

func (l *link) replies(from io.Reader, to io.Writer) {
	for {
		m, err := readMessage(from)
		if err != nil || !l.pass(stalling, silent) || l.is(deaf) {
			return
		}
		if l.is(slowed) {
			time.Sleep(slowBy)
		}
		if l.write(to, m) != nil {
			return
		}
	}
}

// pass waits while the link is in one of these states. It returns false if the link is cut or was
// silent, because sent data is then lost.
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

func (l *link) is(state linkState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == state
}

func (l *link) write(to io.Writer, m []byte) error {
	size := len(m)
	if l.is(sliced) {
		size = 1
	}
	for part := range slices.Chunk(m, size) {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// readMessage reads one wire message. The first four bytes are the length.
func readMessage(r io.Reader) ([]byte, error) {
	var header [16]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size < 16 || size > 48_000_000 {
		return nil, errors.New("not a wire message")
	}
	m := append(make([]byte, 0, size), header[:]...)[:size]
	_, err := io.ReadFull(r, m[16:])
	return m, err
}

// operationOf returns the lock operation of a message, recognized by the shape of its command. For
// other messages it returns an empty string.
func operationOf(m []byte) string {
	const opMsg = 2013
	if binary.LittleEndian.Uint32(m[12:]) != opMsg || len(m) < 26 || m[20] != 0 {
		return ""
	}
	d := bson.Raw(m[21:])
	first, err := d.IndexErr(0)
	if err != nil {
		return ""
	}
	collection, _ := first.Value().StringValueOK()
	isID := func(path ...string) bool { return d.Lookup(path...).Type == bson.TypeObjectID }
	has := func(path ...string) bool { _, err := d.LookupErr(path...); return err == nil }
	switch first.Key() + " " + collection {
	case "findAndModify " + catalog.PingsCollection:
		if has("update", "$set", "seq") {
			return "ping"
		}
		return "condemn"
	case "findAndModify " + catalog.LocksCollection:
		update, _ := d.LookupErr("update") // a pipeline if the server supports pipelines
		switch {
		case update.Type == bson.TypeArray && d.Lookup("query", "process").Type == bson.TypeString:
			return "evict"
		case update.Type == bson.TypeArray && (has("query", "$expr") || isID("query", "ts")):
			return "release" // the general and the short form
		case update.Type == bson.TypeArray:
			return "enter"
		case has("query", "rev") && has("update", "$set", "state") && !has("update", "$set", "ts"):
			return "evict" // by compare-and-set, without pipelines
		case has("query", "rev"):
			return "swap"
		case !has("query", "ts"):
			return "acquire"
		case has("update", "$max"):
			return "seed"
		}
		return "confirm"
	case "update " + catalog.LocksCollection:
		return "release"
	case "insert " + history.Collection:
		return "record"
	}
	return ""
}
