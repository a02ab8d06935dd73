package configserver

import (
	"context"
	"io"
	"net"

	"github.com/rs/zerolog"
)

// This file exports unexported identifiers for tests.

// StartBare runs a FerretDB without the front, on its Unix socket, and returns the socket's path.
func StartBare(dir string) (socket string, stop func() error, err error) {
	b, err := startBackend(dir, false, zerolog.Nop())
	if err != nil {
		return "", nil, err
	}
	return b.socket(), b.close, nil
}

// A Front makes the unexported type front available to tests.
type Front struct{ *front }

// NewFront returns a Front that serves the clients of listener. The Front connects to the backend
// with the function dial.
func NewFront(listener net.Listener, dial dialer, limit int, log zerolog.Logger) Front {
	return Front{newFront(listener, dial, limit, log)}
}

// Close closes the front.
func (f Front) Close(ctx context.Context) { f.close(ctx) }

// Clients returns the number of connected clients.
func (f Front) Clients() int { return int(f.clients.Load()) }

// ErrDamaged matches the error of a message that violates the protocol.
var ErrDamaged = errDamaged

// NewMsg returns a message with one document.
func NewMsg(id int32, document []byte) []byte { return newMsg(id, 0, document) }

// ReadFrame reads a message.
func ReadFrame(r io.Reader) ([]byte, error) { return readFrame(r) }

// Parse parses a client's message. The result forwarded is the message that the front sends to the
// backend.
func Parse(message []byte) (command string, write, silent bool, forwarded []byte, err error) {
	r, err := parseRequest(message)
	return r.command, r.write, r.silent, r.frame, err
}
