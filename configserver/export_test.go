package configserver

import (
	"context"
	"net"

	"github.com/rs/zerolog"
)

// The only door for tests into private parts.

// StartBare runs a FerretDB without the front, on its Unix socket, and returns the socket's path.
func StartBare(ctx context.Context, dir string) (socket string, stop func() error, err error) {
	b, err := startBackend(ctx, dir, false, zerolog.Nop())
	if err != nil {
		return "", nil, err
	}
	return b.socket(), b.close, nil
}

// A Front is a front before any backend.
type Front struct{ *front }

// StartFront serves on a loopback port and dials the backend by dial.
func StartFront(
	ctx context.Context, limit int, dial func(context.Context) (net.Conn, error),
) (Front, error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", defaultAddr)
	if err != nil {
		return Front{}, err
	}
	return Front{newFront(listener, dial, limit, zerolog.Nop())}, nil
}

func (f Front) Addr() string              { return f.listener.Addr().String() }
func (f Front) Close(ctx context.Context) { f.close(ctx) }

// Clients returns how many clients are being served.
func (f Front) Clients() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}

var (
	NewMsg      = newMsg
	ReadFrame   = readFrame
	ErrDamaged  = errDamaged
	MaxMessage  = maxMessageSize
	HeaderBytes = headerSize
)

// Parse returns what the front makes of a client's message.
func Parse(message []byte) (command string, write, silent bool, forwarded []byte, err error) {
	r, err := parseRequest(message)
	return r.command, r.write, r.silent, r.frame, err
}

// Mark adds the front's field to a reply.
func Mark(reply []byte) ([]byte, error) { return markFront(reply) }
