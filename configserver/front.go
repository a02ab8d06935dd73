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
	// maxClients is the maximum number of clients. The front closes further connections immediately.
	maxClients = 2000
	// dialTimeout is the timeout for connecting a new client to the backend.
	dialTimeout = 10 * time.Second
	// acceptPause is the pause after a failed accept, for example without free file descriptors.
	acceptPause = 50 * time.Millisecond
)

// errFrontClosed is the error of a request that the front does not send because it is closing.
var errFrontClosed = errors.New("the front is closed")

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
	gates    gates
	// done is closed when the front begins to close. No command passes after that.
	done          chan struct{}
	reads, writes atomic.Int64 // commands received
	// served counts the goroutine that accepts clients and one goroutine for each client.
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
	cancel context.CancelFunc // cancels the dial of the backend

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

// enter registers a client. It returns false if the front is closing or full.
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

// serve handles the messages of one client until the client disconnects or violates the protocol,
// or until the front closes. ctx bounds only the connection attempt to the backend.
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

// If a session ends with an error, this method logs the error. A normal end is not logged.
func (f *front) ended(s *session, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errFrontClosed) {
		return
	}
	f.log.Debug().Err(err).Stringer("client", s.client.RemoteAddr()).Msg("connection closed")
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
		leave := f.gates.enter(r.database, f.done)
		if leave == nil {
			return nil, errFrontClosed
		}
		defer leave()
	}
	select {
	case <-f.done: // gates.enter may succeed after done was closed
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

// close stops accepting clients, waits for the replies of running commands, and ends all sessions.
// If ctx ends first, close closes the connections of the sessions. It returns when all goroutines
// have ended.
func (f *front) close(ctx context.Context) {
	f.mu.Lock()
	if !f.closing {
		f.closing = true
		close(f.done)
		f.listener.Close() // the error of Close has no remedy
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

// attach makes conn the backend connection of the session. If the session was killed, attach closes
// conn and returns false.
func (s *session) attach(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		conn.Close()
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
		s.client.Close() // the connection has no deadlines or is closed
	}
}

// kill closes both connections. A blocked read or write fails.
func (s *session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	s.cancel()
	s.client.Close()
	if s.backend != nil {
		s.backend.Close()
	}
}
