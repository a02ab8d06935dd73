package configserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/internal/clock"
)

const (
	// maxClients bounds the connections of the front. The front closes further connections
	// immediately.
	maxClients = 2000
	// dialTimeout bounds the connection to the backend for a new client.
	dialTimeout = 10 * time.Second
	// acceptPause is the pause after a failed accept, for example without free file descriptors.
	acceptPause = 50 * time.Millisecond
)

// errFrontClosed is the error of a request that was not sent to the backend because the front
// closes.
var errFrontClosed = errors.New("the front is closed")

type dialer func(ctx context.Context) (net.Conn, error)

// A front serves clients over one backend connection each, and passes one write at a time to each
// database.
//
// One goroutine serves a client from its first message to its last. It reads a message, sends the
// message to the backend, reads the reply and passes the reply to the client. So a client that
// disconnects during a write does not interrupt the write: the goroutine still waits for the
// backend's reply, and the next write passes only then.
type front struct {
	listener net.Listener
	dial     dialer
	limit    int
	log      zerolog.Logger
	gates    gates
	// done is closed when the front begins to close. No command passes after that.
	done          chan struct{}
	reads, writes atomic.Int64 // commands received
	// served counts the goroutines: the one that accepts, and one for each client.
	served sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	clients map[*session]struct{}
	refused int64 // clients beyond the limit
	closing bool
	full    bool // the limit has been logged, and no client has left since
}

// A session is one client and its backend connection.
type session struct {
	client net.Conn
	cancel context.CancelFunc // of the connection attempt to the backend

	mu      sync.Mutex // guards backend, killed
	backend net.Conn   // nil until dialed
	killed  bool
}

// newFront starts to serve on listener and takes ownership of it.
func newFront(listener net.Listener, dial dialer, limit int, log zerolog.Logger) *front {
	f := &front{
		listener: listener, dial: dial, limit: limit, log: log,
		gates: gates{open: make(map[string]*gate)}, done: make(chan struct{}),
		clients: make(map[*session]struct{}),
	}
	f.served.Go(f.accept)
	return f
}

// accept accepts clients until the front closes.
func (f *front) accept() {
	system := clock.System()
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if !clock.Sleep(system, acceptPause, f.done) {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		s := &session{client: conn, cancel: cancel}
		if !f.enter(s) {
			s.kill()
			continue
		}
		f.served.Go(func() {
			defer f.leave(s)
			f.serve(ctx, s)
		})
	}
}

// enter registers a client if the front is neither closing nor full.
func (f *front) enter(s *session) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false
	}
	if len(f.clients) >= f.limit {
		f.refused++
		if !f.full {
			f.log.Warn().Int("limit", f.limit).Msg("client refused, too many connections")
		}
		f.full = true
		return false
	}
	f.clients[s] = struct{}{}
	return true
}

func (f *front) leave(s *session) {
	s.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.clients, s)
	f.full = false
}

// serve serves one client until it disconnects, violates the protocol, or the front closes. ctx
// bounds only the connection to the backend.
func (f *front) serve(ctx context.Context, s *session) {
	conn, err := f.dial(ctx)
	if err != nil {
		f.log.Warn().Err(err).Msg("backend cannot be reached")
		return
	}
	if !s.attach(conn) {
		return
	}
	fromClient, fromBackend := bufio.NewReader(s.client), bufio.NewReader(conn)
	for {
		message, err := readFrame(fromClient)
		if err != nil {
			f.ended(s, err)
			return
		}
		r, err := parseRequest(message)
		if err != nil {
			f.ended(s, err)
			return
		}
		reply, err := f.exchange(conn, fromBackend, r)
		if err != nil {
			f.ended(s, err)
			return
		}
		if r.silent {
			continue
		}
		if _, err = s.client.Write(reply); err != nil {
			return // the client has disconnected
		}
	}
}

// ended logs the error that ends a session. It does not log a normal end.
func (f *front) ended(s *session, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errFrontClosed) {
		return
	}
	f.log.Debug().Err(err).Stringer("client", s.client.RemoteAddr()).Msg("connection closed")
}

// exchange sends a request to the backend and returns its reply. A write waits for the gate of its
// database, and holds the gate until the backend has replied or closed the connection. FerretDB
// closes the connection only after the command has returned. exchange does not use the client's
// connection, so a client that does not read its replies does not delay other clients.
func (f *front) exchange(conn net.Conn, from io.Reader, r request) (frame, error) {
	if !r.write {
		f.reads.Add(1)
	} else {
		f.writes.Add(1)
		leave := f.gates.enter(r.database, f.done)
		if leave == nil {
			return nil, errFrontClosed
		}
		defer leave()
	}
	select {
	case <-f.done: // the select above may choose either ready case
		return nil, errFrontClosed
	default:
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

// close stops accepting, waits for the replies of running commands, and ends all sessions. When ctx
// ends first, close closes their connections. It waits for all goroutines.
func (f *front) close(ctx context.Context) {
	f.mu.Lock()
	if !f.closing {
		f.closing = true
		close(f.done)
		f.listener.Close() // its error has no remedy
		for s := range f.clients {
			s.interrupt()
		}
	}
	f.mu.Unlock()
	ended := make(chan struct{})
	go func() { // returns after the last session
		f.served.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	f.mu.Lock()
	for s := range f.clients {
		s.kill()
	}
	f.mu.Unlock()
	<-ended
}

// attach makes conn the backend connection if the session has not been killed.
func (s *session) attach(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		conn.Close() // unused
		return false
	}
	s.backend = conn
	return true
}

// interrupt makes the current or next read from the client fail. A running command still gets its
// reply.
func (s *session) interrupt() {
	expired := time.Unix(1, 0)
	if err := s.client.SetReadDeadline(expired); err != nil {
		s.client.Close() // the connection has no deadlines, or is closed
	}
}

// kill closes both connections. A blocked read or write fails.
func (s *session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	s.cancel()
	s.client.Close() // its error does not matter
	if s.backend != nil {
		s.backend.Close() // the error does not matter
	}
}
