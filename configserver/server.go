package configserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/internal/clock"
)

const closeTimeout = 10 * time.Second

// ErrNotLoopback is returned by [Start] when Config.Addr is not a loopback address. The server has
// no passwords, so it accepts no clients from other machines.
var ErrNotLoopback = errors.New("configserver: address is not loopback")

// Config configures a server. The zero value means a temporary folder and a port that the system
// chooses.
type Config struct {
	// Dir is the folder of the documents. Start creates a missing folder, with access only for its
	// owner. Only one server at a time may use a folder. If Dir is empty, the server uses a temporary
	// folder without disk syncs, and Close removes this folder.
	Dir string
	// Addr is the TCP address to listen on: a loopback address or localhost, with a port; default
	// "127.0.0.1:0". If the port is 0, the system chooses a port.
	Addr string
	// Logger gets the warnings for an operator, and the errors of FerretDB; silent by default.
	Logger zerolog.Logger
}

// A Server is a running config server. It is safe for concurrent use.
type Server struct {
	folder  *folder
	backend *backend
	front   *front

	closing sync.Once
	closed  chan struct{} // closed after the shutdown; err is set before that
	err     error
}

// Start runs a config server until [Server.Close]; see the package comment for its limits. When
// Start returns, the server accepts commands. ctx bounds only the start.
//
// If Addr is not a loopback address, the error matches [ErrNotLoopback]. If another server uses
// Dir, the error matches [ErrDirInUse]. Other errors mean that the folder, the port or FerretDB is
// not available.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	addr, err := loopback(ctx, cfg.Addr)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("configserver: start: %w", context.Cause(ctx))
	}
	s := &Server{closed: make(chan struct{})}
	if s.folder, err = openFolder(ctx, cfg.Dir); err != nil {
		return nil, err
	}
	s.backend, err = startBackend(s.folder.path, s.folder.temporary, cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, s.folder.close())
	}
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", addr)
	if err != nil {
		err = fmt.Errorf("configserver: listen: %w", err)
		return nil, errors.Join(err, s.backend.close(), s.folder.close())
	}
	s.front = newFront(listener, s.backend.dial, maxClients, cfg.Logger)
	return s, nil
}

// loopback returns the address with a numeric host. It returns an error if the address is not
// loopback.
func loopback(ctx context.Context, addr string) (string, error) {
	addr = cmp.Or(addr, "127.0.0.1:0")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("configserver: address: %w", err)
	}
	ip := net.ParseIP(host)
	if host == "localhost" {
		found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
		if err != nil || len(found) == 0 {
			return "", fmt.Errorf("configserver: address %q: %w", addr, err)
		}
		ip = found[0].IP
	}
	if ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf(
			"%w: %q; the server has no authentication, use 127.0.0.1, ::1 or localhost",
			ErrNotLoopback, addr)
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// URI returns the connection string of the server for any MongoDB driver.
func (s *Server) URI() string {
	return "mongodb://" + s.Addr() + "/?directConnection=true"
}

// Addr returns the host and port that the server listens on.
func (s *Server) Addr() string { return s.front.listener.Addr().String() }

// Dir returns the folder of the documents, even if it is temporary.
func (s *Server) Dir() string { return s.folder.path }

// Stats are the numbers of clients and commands of a server. All totals count from its start.
type Stats struct {
	Clients       int   // connected now
	Refused       int64 // clients refused because of too many connections
	Reads, Writes int64 // commands received; the writes of a database are serialized
}

// Stats returns the counts. It does not wait for commands.
func (s *Server) Stats() Stats {
	f := s.front
	return Stats{
		Clients: int(f.clients.Load()), Refused: f.refused.Load(),
		Reads: f.reads.Load(), Writes: f.writes.Load(),
	}
}

// Close stops the server and waits for all its goroutines. Running commands have 10 s to complete.
// Then Close closes their connections. Close removes a temporary folder. A second call waits for
// the first call and returns the same result.
//
// If ctx ends first, Close returns an error with the cause, and the shutdown continues in the
// background. When the ctx of the first call ends, the server also closes the connections of
// running commands.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		go s.shutdown(ctx) // Close waits for it
	})
	select {
	case <-s.closed:
	case <-ctx.Done():
		if !clock.Over(s.closed) {
			return fmt.Errorf("configserver: close: %w", context.Cause(ctx))
		}
	}
	return s.err
}

// shutdown closes the front, FerretDB and the folder in this order. So FerretDB has no open
// connection when it closes.
func (s *Server) shutdown(ctx context.Context) {
	defer close(s.closed)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	s.front.close(ctx)
	s.err = errors.Join(s.backend.close(), s.folder.close())
}
