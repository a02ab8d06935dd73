package integration_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A wire is a proxy that knows MongoDB's messages, for what no byte proxy can do: lose the reply of
// exactly this command, hold exactly that one back.
type wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex // guards the fields below
	fault func(op string) mishap
	hits  map[string]int // commands by what was done with them
	lost  map[int32]bool // request ids whose replies are lost
	gate  chan struct{}  // closed when held commands may go
	conns map[net.Conn]bool
	loops sync.WaitGroup
}

// A mishap is what becomes of one command.
type mishap int

const (
	delivered  mishap = iota
	replyLost         // carried out; the connection breaks instead of the reply
	requestCut        // the connection breaks instead of the request
	twice             // sent twice in the same bytes; the second reply is thrown away
	held              // sent when the wire lets go, however long the client waits
)

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target, hits: map[string]int{}, lost: map[int32]bool{},
		conns: map[net.Conn]bool{}, gate: make(chan struct{})}
	w.loops.Go(w.serve) // ends with the listener
	t.Cleanup(func() {
		_ = l.Close() // ends serve
		w.letGo()
		w.mu.Lock()
		for c := range w.conns {
			_ = c.Close()
		}
		w.conns = nil
		w.mu.Unlock()
		w.loops.Wait()
	})
	return w
}

func (w *wire) uri() string {
	return "mongodb://" + w.listener.Addr().String() + "/?directConnection=true"
}

// set decides what becomes of each command from now on; nil delivers all.
func (w *wire) set(fault func(op string) mishap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// first lets a mishap befall the first command of that kind, and no other.
func (w *wire) first(op string, m mishap) {
	w.set(func(got string) mishap { // called under mu
		if got != op {
			return delivered
		}
		w.fault = nil
		return m
	})
}

// letGo sends what was held back.
func (w *wire) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
	w.gate = make(chan struct{})
}

// hit returns how many commands of a kind met with a mishap.
func (w *wire) hit(op string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits[op]
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		if w.conns == nil {
			_, _ = client.Close(), server.Close()
		} else {
			w.conns[client], w.conns[server] = true, true
		}
		w.mu.Unlock()
		end := func() {
			_, _ = client.Close(), server.Close()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.conns, client)
			delete(w.conns, server)
		}
		w.loops.Go(func() { defer end(); w.requests(client, server) }) // both end with either
		w.loops.Go(func() { defer end(); w.replies(server, client) })
	}
}

func (w *wire) requests(from io.Reader, to io.Writer) {
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		times := 1
		what, gate := w.judge(m)
		switch what {
		case requestCut:
			return
		case twice:
			times = 2
		case held:
			<-gate
		}
		for n := range times {
			if n > 0 { // another request as far as the reply is concerned
				id := int32(binary.LittleEndian.Uint32(m[4:])) ^ 1<<30
				binary.LittleEndian.PutUint32(m[4:], uint32(id))
			}
			if _, err := to.Write(m); err != nil {
				return
			}
		}
	}
}

func (w *wire) judge(m []byte) (mishap, <-chan struct{}) {
	op := operationOf(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == "" || w.fault == nil {
		return delivered, nil
	}
	what := w.fault(op)
	if what != delivered {
		w.hits[op]++
	}
	if what == replyLost {
		w.lost[int32(binary.LittleEndian.Uint32(m[4:]))] = true
	}
	return what, w.gate
}

func (w *wire) replies(from io.Reader, to io.Writer) {
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		answers := int32(binary.LittleEndian.Uint32(m[8:]))
		w.mu.Lock()
		lost := w.lost[answers]
		delete(w.lost, answers)
		w.mu.Unlock()
		if lost {
			return
		}
		if answers >= 1<<30 { // the second reply of a doubled request
			continue
		}
		if _, err := to.Write(m); err != nil {
			return
		}
	}
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
		update, _ := d.LookupErr("update") // a pipeline where the server has those
		switch {
		case update.Type == bson.TypeArray && (has("query", "$expr") || isID("query", "ts")):
			return "release" // in general, and in short
		case update.Type == bson.TypeArray:
			return "enter"
		case has("query", "rev") && isID("update", "$set", "ts") && !has("update", "$set", "grants"):
			return "overtake" // by compare-and-set, where the server has no pipelines
		case has("query", "rev"):
			return "swap"
		case has("query", "process"):
			return "overtake"
		case !has("query", "ts"):
			return "acquire"
		case has("update", "$max"):
			return "seed"
		}
		return "confirm"
	case "update " + catalog.LocksCollection:
		return "release"
	}
	return ""
}
