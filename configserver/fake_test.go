package configserver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

// A stage is a front with simulated clients and a simulated backend. Its connections are pipes in a
// synctest bubble.
type stage struct {
	t        *testing.T
	front    configserver.Front
	incoming chan net.Conn
	arrived  chan arrival
	refuse   bool // dial fails
	dials    atomic.Int32
	closed   chan struct{}
	once     sync.Once // closes closed
}

// An arrival is a message that the backend received, and the connection for its reply.
type arrival struct {
	frame []byte
	conn  net.Conn
}

func play(t *testing.T, limit int, test func(s *stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t: t, incoming: make(chan net.Conn), closed: make(chan struct{}),
			arrived: make(chan arrival, 100),
		}
		s.front = configserver.NewFront(s, s.dial, limit, zerolog.Nop())
		test(s)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.front.Close(ctx)
	})
}

// Accept, Close and Addr implement net.Listener for the front.
func (s *stage) Accept() (net.Conn, error) {
	select {
	case conn := <-s.incoming:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
func (s *stage) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *stage) Addr() net.Addr { return &net.TCPAddr{} }

func (s *stage) dial(context.Context) (net.Conn, error) {
	if s.dials.Add(1); s.refuse {
		return nil, errors.New("refused")
	}
	near, far := net.Pipe()
	go func() { // returns when the front closes its side
		for {
			frame, err := configserver.ReadFrame(far)
			if err != nil {
				far.Close()
				return
			}
			s.arrived <- arrival{frame, far}
		}
	}()
	return near, nil
}

// A client is the test's side of a client connection.
type client struct {
	s *stage
	net.Conn
	id int32
	// replies receives the front's replies. It is closed with the connection.
	replies chan []byte
}

// connect returns a new client of the front. If deaf is set, the client reads no replies.
func (s *stage) connect(deaf bool) *client {
	near, far := net.Pipe()
	c := &client{s: s, Conn: near, replies: make(chan []byte, 100)}
	s.t.Cleanup(func() { near.Close() })
	s.incoming <- far
	synctest.Wait() // until the client is served or refused
	if !deaf {
		go func() { // returns when the connection is closed
			defer close(c.replies)
			for {
				frame, err := configserver.ReadFrame(near)
				if err != nil {
					return
				}
				c.replies <- frame
			}
		}()
	}
	return c
}

func (c *client) send(command bson.D, flags uint32) {
	c.s.t.Helper()
	c.id++
	if _, err := c.Write(message(c.s.t, c.id, command, flags)); err != nil {
		c.s.t.Error(err)
	}
	synctest.Wait()
}

func (c *client) reply() []byte {
	synctest.Wait()
	select {
	case r := <-c.replies:
		return r
	default:
		return nil
	}
}

// gone reports whether the front has closed the connection. Call it after reading all replies.
func (c *client) gone() bool {
	synctest.Wait()
	select {
	case _, open := <-c.replies:
		return !open
	default:
		return false
	}
}

func (s *stage) next() (arrival, bool) {
	synctest.Wait()
	select {
	case a := <-s.arrived:
		return a, true
	default:
		return arrival{}, false
	}
}

// expect checks that the next message at the backend is the given command.
func (s *stage) expect(command string) arrival {
	s.t.Helper()
	a, ok := s.next()
	if !ok {
		s.t.Fatalf("%s has not reached the backend", command)
	}
	if got, _, _, _, err := configserver.Parse(a.frame); err != nil || got != command {
		s.t.Fatalf("the backend got %q, %v, want %q", got, err, command)
	}
	return a
}

func (s *stage) nothing() {
	s.t.Helper()
	if a, ok := s.next(); ok {
		got, _, _, _, _ := configserver.Parse(a.frame)
		s.t.Errorf("%s has reached the backend too early", got)
	}
}

func (a arrival) answer(t *testing.T, document bson.D) {
	t.Helper()
	reply := message(t, 1000, document, 0)
	copy(reply[8:12], a.frame[4:8])
	assert.NoErr(t, assert.Err(a.conn.Write(reply)))
	synctest.Wait()
}

// A command of the client must reach the backend, and the reply must reach the client.
func (s *stage) serves(c *client, command bson.D) {
	s.t.Helper()
	c.send(command, 0)
	s.expect(command[0].Key).answer(s.t, okay)
	if c.reply() == nil {
		s.t.Errorf("no reply to %s", command[0].Key)
	}
}

// close closes the front in the background. The returned channel is closed when the front is
// closed.
func (s *stage) close() (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.front.Close(context.Background())
	}()
	synctest.Wait()
	return done
}

// message returns an OP_MSG. If flags contains the checksum flag, the message ends with a valid
// checksum.
func message(t testing.TB, id int32, command bson.D, flags uint32) []byte {
	t.Helper()
	document := assert.Value(bson.Marshal(command))(t)
	return withFlags(configserver.NewMsg(id, document), flags)
}

func withFlags(frame []byte, flags uint32) []byte {
	binary.LittleEndian.PutUint32(frame[16:], flags)
	if flags&1 == 0 {
		return frame
	}
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)+4))
	sum := crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(frame, sum)
}
