package configserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/internal/clock"
)

const (
	// maxClients bounds the connections of the front. One more is closed at once.
	maxClients = 2000
	// dialTimeout bounds the connecting to the backend for a new client.
	dialTimeout = 10 * time.Second
	// acceptPause is waited after a failed accept, such as one for want of file descriptors.
	acceptPause = 50 * time.Millisecond
)

// errFrontClosed ends a request that had not been sent to the backend when the front was closed.
var errFrontClosed = errors.New("the front is closed")

// A dialer connects to the backend.
type dialer func(ctx context.Context) (net.Conn, error)

// A front serves clients over one backend connection each, and lets one write
// at a time through to each database.
//
// One goroutine serves a client from its first message to its last: it reads a message, sends it
// to the backend, reads the answer and hands it on. So a client that goes away in the middle of a
// write does not cut the write short: its goroutine still waits for the backend's answer, and only
// then lets the next write through.
type front struct {
	listener net.Listener
	dial     dialer
	limit    int
	log      zerolog.Logger
	gates    gates
	// done is closed when the front begins to close: no further write is let through.
	done   chan struct{}
	counts counts
	// served counts the goroutines: one that accepts and one for each client.
	served sync.WaitGroup

	mu      sync.Mutex // guards clients, closing, full
	clients map[*session]struct{}
	closing bool
	full    bool // the limit has been logged, and no client left since
}

// A session is one client and its backend connection.
type session struct {
	client net.Conn
	cancel context.CancelFunc // of the connecting to the backend

	mu      sync.Mutex // guards backend, killed
	backend net.Conn   // nil until dialed
	killed  bool
}

// newFront starts to serve on listener, which it owns from then on.
func newFront(listener net.Listener, dial dialer, limit int, log zerolog.Logger) *front {
	f := &front{
		listener: listener, dial: dial, limit: limit, log: log,
		gates: gates{open: make(map[string]*gate)}, done: make(chan struct{}),
		clients: make(map[*session]struct{}),
	}
	f.served.Go(f.accept)
	return f
}

// accept takes clients until the front closes.
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

// enter counts a client in, unless the front is closing or full.
func (f *front) enter(s *session) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false
	}
	if len(f.clients) >= f.limit {
		f.counts.refused.Add(1)
		first := !f.full
		f.full = true
		if first {
			f.log.Warn().Int("limit", f.limit).Msg("client refused, too many connections")
		}
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

// serve answers one client until it goes away, breaks the protocol, or the front closes. ctx bounds
// only the connecting to the backend.
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
			return // the client has gone
		}
	}
}

// ended says why a session ends, unless that is how sessions end.
func (f *front) ended(s *session, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errFrontClosed) {
		return
	}
	f.log.Debug().Err(err).Stringer("client", s.client.RemoteAddr()).Msg("connection closed")
}

// exchange sends a request to the backend and returns its reply. A write waits for its turn, and
// keeps it until the backend has answered or closed the connection, which FerretDB does only after
// the command has returned. Nothing of the client is touched in between: a client that
// does not read its replies holds up nobody else.
func (f *front) exchange(conn net.Conn, from io.Reader, r request) (frame, error) {
	f.counts.add(r)
	if r.write {
		leave := f.gates.enter(r.database, f.done)
		if leave == nil {
			return nil, errFrontClosed
		}
		defer leave()
	}
	select {
	case <-f.done: // both were ready above
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
	if r.command == "buildInfo" || r.command == "buildinfo" {
		if reply.opCode() == opMsg {
			return markFront(reply)
		}
	}
	return reply, nil
}

// close stops accepting, lets the commands that are with the backend be answered, and ends all
// sessions; when ctx ends before that, it cuts them off. It returns when every goroutine has ended.
func (f *front) close(ctx context.Context) {
	f.mu.Lock()
	if !f.closing {
		f.closing = true
		close(f.done)
		f.listener.Close() // nothing can be done about a failure
		for s := range f.clients {
			s.interrupt()
		}
	}
	f.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the last session
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

// attach makes conn the backend connection, unless the session has been killed meanwhile.
func (s *session) attach(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		conn.Close() // nothing was sent on it
		return false
	}
	s.backend = conn
	return true
}

// interrupt makes the next read of the client fail, also one that is waiting. What is being
// answered is still answered.
func (s *session) interrupt() {
	expired := time.Unix(1, 0)
	if err := s.client.SetReadDeadline(expired); err != nil {
		s.client.Close() // it has no deadlines, or has gone
	}
}

// kill closes both connections. A read or write that is waiting fails.
func (s *session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	s.cancel()
	s.client.Close() // closed for good, whatever it says
	if s.backend != nil {
		s.backend.Close() // likewise
	}
}
