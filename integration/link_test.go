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

// A link is a proxy between a process and its server. It reads MongoDB's messages, so that it can
// lose the replies from one command on.
type link struct {
	listener net.Listener
	target   string
	loops    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	state   linkState
	changed chan struct{} // closed when the state changes
	stalled int           // replies that were held back
	deafAt  string        // from the first request of this operation on replies are lost
	conns   map[net.Conn]bool
}

// A linkState is how a link is as a whole.
type linkState int

const (
	passing  linkState = iota
	cut                // connections are broken, new ones too
	stalling           // requests pass, replies do not
	silent             // connections stay, no data passes; sent data is lost
	deaf               // requests pass, the first reply breaks the connection
	slowed             // replies come late by slowBy
	sliced             // single bytes pass, one after the other
)

const slowBy = 200 * time.Millisecond

// newLink listens until the end of the test.
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

// through puts a link before the deployment's primary. A deployment that this program did not start
// is skipped if it can be reached in more ways than one address.
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

// set makes the link good or bad as a whole.
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

// deafFrom loses every reply from the first command of that kind on, which is carried out. An empty
// op ends that.
func (l *link) deafFrom(op string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deafAt = op
}

// heldBack returns how many replies were held back.
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
		l.loops.Go(func() { defer end(); l.requests(client, server) }) // both end with either
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

// noteRequest makes the link deaf if a request is the one that deafFrom names.
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

// pass waits while the link is in one of these states, and reports whether the connection still is
// whole: data sent over a silent one is lost.
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

// readMessage reads one wire message: its first four bytes are its length.
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

// operationOf names the operation of the lock protocol that a message carries, by the shape of its
// command; empty for anything else.
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
		update, _ := d.LookupErr("update") // a pipeline if the server supports them
		switch {
		case update.Type == bson.TypeArray && d.Lookup("query", "process").Type == bson.TypeString:
			return "evict"
		case update.Type == bson.TypeArray && (has("query", "$expr") || isID("query", "ts")):
			return "release" // in general, and in short
		case update.Type == bson.TypeArray:
			return "enter"
		case has("query", "rev") && has("update", "$set", "state") && !has("update", "$set", "ts"):
			return "evict" // by compare-and-set, where the server has no pipelines
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
