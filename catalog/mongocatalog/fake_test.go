package mongocatalog_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/test/assert"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// A fakeServer imitates the primary of a replica set with retryable writes. It implements a part of
// the wire protocol.
type fakeServer struct {
	listener net.Listener
	// answer returns the reply to a command. If the reply is nil, the server closes the connection. If
	// the reply is the variable hang, the server sends nothing and keeps the connection open.
	answer func(command bson.Raw) bson.D
	hello  bson.D // additional fields of the reply to hello
	build  bson.D // additional fields of the reply to buildInfo
	// version is the version number in the reply to buildInfo. If it is empty, the reply contains
	// 7.0.5. A test must set hello and version before a client connects.
	version string

	wg       sync.WaitGroup
	mu       sync.Mutex // guards commands, conns, closed
	commands []bson.Raw
	conns    []net.Conn
	closed   bool
}

var hang = bson.D{{Key: "hang", Value: true}}

func serve(t *testing.T, answer func(command bson.Raw) bson.D) *fakeServer {
	t.Helper()
	listener := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &fakeServer{listener: listener, answer: answer}
	s.wg.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *fakeServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = conn.Close()
		}
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.wg.Go(func() { s.talk(conn) })
	}
}

func (s *fakeServer) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *fakeServer) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		header := make([]byte, 16)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(header)-16)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		var command bson.Raw
		op := binary.LittleEndian.Uint32(header[12:])
		if op == opQuery {
			command = bson.Raw(body[4+len("admin.$cmd")+1+8:])
		} else {
			command = bson.Raw(body[5:])
		}
		reply := s.reply(command)
		if reply == nil {
			return
		}
		if len(reply) > 0 && reply[0].Key == "hang" {
			continue
		}
		if _, err := conn.Write(message(op, header[4:8], reply)); err != nil {
			return
		}
	}
}

func message(op uint32, requestID []byte, reply bson.D) []byte {
	doc, err := bson.Marshal(reply)
	if err != nil {
		panic(err)
	}
	var body []byte
	if op == opQuery {
		op = opReply
		body = make([]byte, 20)
		body[16] = 1 // one document
	} else {
		op = opMsg
		body = make([]byte, 5)
	}
	body = append(body, doc...)
	out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
	out = append(out, 1, 0, 0, 0)
	out = append(out, requestID...)
	out = binary.LittleEndian.AppendUint32(out, op)
	return append(out, body...)
}

func (s *fakeServer) reply(command bson.Raw) bson.D {
	elements, err := command.Elements()
	if err != nil || len(elements) == 0 {
		return nil
	}
	switch elements[0].Key() {
	case "hello", "isMaster", "ismaster":
		address := s.listener.Addr().String()
		return append(bson.D{
			{Key: "ok", Value: 1.0}, {Key: "helloOk", Value: true}, {Key: "ismaster", Value: true},
			{Key: "isWritablePrimary", Value: true}, {Key: "setName", Value: "c"},
			{Key: "setVersion", Value: int32(1)}, {Key: "hosts", Value: bson.A{address}},
			{Key: "me", Value: address}, {Key: "primary", Value: address},
			{Key: "electionId", Value: bson.ObjectID{1}},
			{Key: "minWireVersion", Value: int32(0)}, {Key: "maxWireVersion", Value: int32(21)},
			{Key: "maxBsonObjectSize", Value: int32(16 << 20)},
			{Key: "maxMessageSizeBytes", Value: int32(48000000)},
			{Key: "maxWriteBatchSize", Value: int32(100000)},
			{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "localTime", Value: bson.DateTime(5)},
		}, s.hello...)
	case "endSessions":
		return bson.D{{Key: "ok", Value: 1.0}}
	case "buildInfo":
		return append(bson.D{
			{Key: "ok", Value: 1.0}, {Key: "version", Value: cmp.Or(s.version, "7.0.5")},
		}, s.build...)
	}
	s.mu.Lock()
	s.commands = append(s.commands, append(bson.Raw(nil), command...))
	s.mu.Unlock()
	return s.answer(command)
}

// sent returns the received commands, without the driver's own commands such as hello.
func (s *fakeServer) sent() []bson.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// client returns a MongoDB client. Its connection string sets options that the store must override,
// such as w=0.
func (s *fakeServer) client(t *testing.T) *mongo.Client {
	t.Helper()
	return dial(t, "mongodb://"+s.listener.Addr().String()+
		"/?replicaSet=c&w=0&readPreference=secondary&readConcernLevel=local&retryWrites=true")
}

func dial(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(uri)))(t)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}
