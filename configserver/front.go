package configserver

import (
	"bufio"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/internal/clock"
)

const (
	// maxClients is the maximum number of clients. The front closes further connections immediately.
	maxClients = 2000
	// acceptPause is the pause after a failed accept, for example without free file descriptors.
	acceptPause = 50 * time.Millisecond
)

type dialer func(ctx context.Context) (net.Conn, error)

// A front serves each client over its own backend connection, and passes one write at a time to
// each database.
//
// Each client has one goroutine. The goroutine repeatedly reads a message, sends it to the backend,
// reads the reply and sends the reply to the client. If the client disconnects during a write, the
// goroutine still waits for the reply of the backend. Only then does the next write pass.
type front struct {
	listener net.Listener
	dial     dialer
	limit    int
	log      zerolog.Logger
	// open ends when the front begins to close. No command passes after that. When whole ends, the
	// remaining connections are closed.
	open, whole   context.Context
	stop, cut     context.CancelFunc
	reads, writes atomic.Int64 // commands received
	clients       atomic.Int64 // connected now
	refused       atomic.Int64 // clients beyond the limit
	gates         [1024]gate   // by the hash of a database name
	// served counts the goroutine that accepts clients and one goroutine for each client.
	served sync.WaitGroup
}

// A gate passes one write at a time. It has one element while the backend carries out a write.
type gate chan struct{}

// newFront starts to serve on listener and takes ownership of it.
func newFront(listener net.Listener, dial dialer, limit int, log zerolog.Logger) *front {
	f := &front{listener: listener, dial: dial, limit: limit, log: log}
	for i := range f.gates {
		f.gates[i] = make(gate, 1)
	}
	f.open, f.stop = context.WithCancel(context.Background())
	f.whole, f.cut = context.WithCancel(context.Background())
	f.served.Go(f.accept)
	return f
}

func (f *front) accept() {
	system := clock.System()
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if !clock.Sleep(system, acceptPause, f.open.Done()) {
				return
			}
			continue
		}
		f.served.Go(func() { f.receive(conn) })
	}
}

// receive connects a new client to the backend and serves it.
func (f *front) receive(client net.Conn) {
	defer client.Close()
	defer f.clients.Add(-1)
	if f.clients.Add(1) > int64(f.limit) {
		if f.refused.Add(1) == 1 { // Stats returns the number of the others
			f.log.Warn().Int("limit", f.limit).Msg("client refused, too many connections")
		}
		return
	}
	backend, err := f.dial(f.open)
	if err != nil {
		if f.open.Err() == nil {
			f.log.Warn().Err(err).Msg("backend cannot be reached")
		}
		return
	}
	defer backend.Close()
	defer context.AfterFunc(f.open, func() {
		// The current or next read from the client fails. A running command still gets its reply.
		_ = client.SetReadDeadline(time.Unix(1, 0)) // only fails if the client is closed
	})()
	defer context.AfterFunc(f.whole, func() {
		client.Close()
		backend.Close()
	})()
	err = f.serve(client, backend)
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		f.log.Debug().Err(err).Stringer("client", client.RemoteAddr()).Msg("connection closed")
	}
}

// serve handles the messages of one client until the client disconnects or violates the protocol,
// or until the front closes.
func (f *front) serve(client, backend net.Conn) error {
	fromClient, fromBackend := bufio.NewReader(client), bufio.NewReader(backend)
	for {
		message, err := readFrame(fromClient)
		if err != nil {
			return err
		}
		r, err := parseRequest(message)
		if err != nil {
			return err
		}
		reply, err := f.exchange(backend, fromBackend, r)
		if err != nil {
			return err
		}
		if r.silent {
			continue
		}
		if _, err = client.Write(reply); err != nil {
			return net.ErrClosed // the client has disconnected
		}
	}
}

// gateOf returns the gate of a database. Several databases may share a gate.
func (f *front) gateOf(database string) gate {
	return f.gates[crc32.ChecksumIEEE([]byte(database))%uint32(len(f.gates))]
}

// exchange sends a request to the backend and returns its reply. A write waits for the gate of its
// database, and holds the gate until the backend has replied or closed the connection. FerretDB
// closes the connection only after the command has returned. exchange does not use the client's
// connection. So a client that does not read its replies cannot delay other clients.
func (f *front) exchange(conn net.Conn, from io.Reader, r request) (frame, error) {
	if !r.write {
		f.reads.Add(1)
	} else {
		f.writes.Add(1)
		gate := f.gateOf(r.database)
		select {
		case gate <- struct{}{}:
			defer func() { <-gate }()
		case <-f.open.Done():
		}
	}
	if f.open.Err() != nil { // the gate may be free although the front is closing
		return nil, net.ErrClosed
	}
	if _, err := conn.Write(r.frame); err != nil {
		return nil, err
	}
	reply, err := readFrame(from)
	if err != nil {
		return nil, err
	}
	if reply.responseTo() != r.frame.requestID() {
		return nil, damaged("backend answers %d, not %d", reply.responseTo(), r.frame.requestID())
	}
	info := r.command == "buildInfo" || r.command == "buildinfo"
	if info && reply.opCode() == opMsg {
		return markFront(reply)
	}
	return reply, nil
}

// close stops accepting clients, waits for the replies of running commands, and ends all sessions.
// If ctx ends first, close closes the connections of the sessions. It returns when all goroutines
// have ended.
func (f *front) close(ctx context.Context) {
	f.stop()
	f.listener.Close() // its error has no remedy
	defer context.AfterFunc(ctx, f.cut)()
	f.served.Wait()
}
