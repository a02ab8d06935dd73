package configserver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

const (
	flagChecksum   = 1
	flagMoreToCome = 2
	flagExhaust    = 1 << 16
)

var (
	insertOne = bson.D{{Key: "insert", Value: "locks"}, {Key: "$db", Value: "config"}}
	findOne   = bson.D{{Key: "find", Value: "locks"}, {Key: "$db", Value: "config"}}
	okay      = bson.D{{Key: "ok", Value: 1.0}}
)

func TestFront_Writes_OneAtATime_ReadsBeside(t *testing.T) {
	play(t, 10, func(s *stage) {
		a, b, c := s.connect(false), s.connect(false), s.connect(false)
		a.send(insertOne, 0)
		first := s.expect("insert")
		b.send(insertOne, 0)
		s.nothing()
		for range 3 { // reads overlap with the running write
			s.serves(c, findOne)
		}
		s.nothing()
		first.answer(t, okay)
		if a.reply() == nil || b.reply() != nil {
			t.Error("the first client got no reply, or the second got one")
		}
		s.expect("insert").answer(t, okay)
		if b.reply() == nil {
			t.Error("no reply to the second write")
		}
	})
}

// Writes to different databases do not wait for each other. The command renameCollection is sent to
// the database admin. It waits for a write to the database of the renamed collection.
func TestFront_Writes_OfTwoDatabases_PassBeside(t *testing.T) {
	elsewhere := bson.D{{Key: "insert", Value: "locks"}, {Key: "$db", Value: "other"}}
	rename := bson.D{{Key: "renameCollection", Value: "Config.locks"},
		{Key: "to", Value: "config.old"}, {Key: "$db", Value: "admin"}}
	play(t, 10, func(s *stage) {
		a, b, c := s.connect(false), s.connect(false), s.connect(false)
		a.send(insertOne, 0)
		first := s.expect("insert")
		s.serves(b, elsewhere)
		c.send(rename, 0)
		s.nothing()
		first.answer(t, okay)
		s.expect("renameCollection").answer(t, okay)
		if a.reply() == nil || c.reply() == nil {
			t.Error("a reply is missing")
		}
	})
}

func TestFront_ClientVanishesInAWrite_NextWriteWaits(t *testing.T) {
	play(t, 10, func(s *stage) {
		a, b := s.connect(false), s.connect(false)
		a.send(insertOne, 0)
		first := s.expect("insert")
		a.Close()
		b.send(insertOne, 0)
		s.nothing()
		first.answer(t, okay)
		s.expect("insert").answer(t, okay)
		if b.reply() == nil {
			t.Error("no reply")
		}
	})
}

func TestFront_ClientReadsNoReply_HoldsUpNobody(t *testing.T) {
	play(t, 10, func(s *stage) {
		deaf, b := s.connect(true), s.connect(false)
		deaf.send(insertOne, 0)
		s.expect("insert").answer(t, okay)
		s.serves(b, insertOne)
	})
}

// The front sends the next write only after the backend has replied to an unacknowledged write. The
// client of the unacknowledged write gets no reply.
func TestFront_MoreToCome_HoldsTheGateAndStaysSilent(t *testing.T) {
	play(t, 10, func(s *stage) {
		a, b := s.connect(false), s.connect(false)
		a.send(insertOne, flagMoreToCome|flagChecksum)
		first := s.expect("insert")
		assert.Equal(t, binary.LittleEndian.Uint32(first.frame[16:]), 0,
			"the backend got the flags %#x, want %#x")
		b.send(insertOne, 0)
		s.nothing()
		first.answer(t, okay)
		if a.reply() != nil {
			t.Error("an unacknowledged write got a reply")
		}
		s.expect("insert").answer(t, okay)
		a.send(findOne, flagExhaust)
		s.expect("find").answer(t, okay)
		reply := a.reply()
		if reply == nil || binary.LittleEndian.Uint32(reply[8:]) != 2 {
			t.Errorf("reply to the second message: %x", reply)
		}
	})
}

func TestFront_BackendFails_ClosesTheClientAndGoesOn(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, a arrival){
		"ends in a write": func(_ *testing.T, a arrival) { a.conn.Close() },
		"answers another request": func(t *testing.T, a arrival) {
			a.frame[4]++
			a.answer(t, okay)
		},
		"answers nonsense": func(t *testing.T, a arrival) {
			assert.NoErr(t, assert.Err(a.conn.Write(make([]byte, 16))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 10, func(s *stage) {
				a, b := s.connect(false), s.connect(false)
				a.send(insertOne, 0)
				fail(t, s.expect("insert"))
				if !a.gone() {
					t.Error("the client is still connected")
				}
				s.serves(b, insertOne)
			})
		})
	}
}

func TestFront_BackendNotReached_ClosesTheClient(t *testing.T) {
	play(t, 10, func(s *stage) {
		s.refuse = true
		if !s.connect(false).gone() {
			t.Error("the client is still connected")
		}
	})
}

func TestFront_DamagedMessage_ClosesTheClient(t *testing.T) {
	good := message(t, 1, insertOne, 0)
	for name, bad := range map[string][]byte{
		"opcode 0": edit(good, 12, 0, 0), "length 0": make([]byte, 16), "cut short": good[:len(good)-1],
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 10, func(s *stage) {
				c := s.connect(false)
				assert.NoErr(t, assert.Err(c.Write(bad)))
				if name == "cut short" {
					c.Close()
				}
				if !c.gone() {
					t.Error("the client is still connected")
				}
				s.nothing()
				assert.Equal(t, s.front.Clients(), 0, "%d clients are left, want %d")
			})
		})
	}
}

func edit(b []byte, at int, to ...byte) []byte {
	b = append([]byte(nil), b...)
	copy(b[at:], to)
	return b
}

func TestFront_TooManyClients_OneMoreIsClosed(t *testing.T) {
	play(t, 2, func(s *stage) {
		a, b := s.connect(false), s.connect(false)
		for range 2 {
			if !s.connect(false).gone() {
				t.Error("a third client is served")
			}
		}
		if n := s.dials.Load(); n != 2 {
			t.Errorf("%d connections to the backend for two clients", n)
		}
		a.Close()
		synctest.Wait()
		for _, c := range []*client{b, s.connect(false)} {
			s.serves(c, findOne)
		}
	})
}

func TestFront_Close_AnswersWhatIsUnderWay(t *testing.T) {
	play(t, 10, func(s *stage) {
		a, b, idle := s.connect(false), s.connect(false), s.connect(false)
		a.send(insertOne, 0)
		first := s.expect("insert")
		b.send(insertOne, 0)
		ended := s.close()
		if !idle.gone() || !b.gone() {
			t.Error("idle and waiting clients are still connected")
		}
		first.answer(t, okay)
		if a.reply() == nil || !a.gone() {
			t.Error("the running write got no reply, or its connection is still open")
		}
		<-ended
		s.nothing()
	})
}

func TestFront_Close_PipelinedCommand_IsNotCarriedOut(t *testing.T) {
	play(t, 10, func(s *stage) {
		a := s.connect(false)
		both := append(message(t, 1, findOne, 0), message(t, 2, findOne, 0)...)
		assert.Value(a.Write(both))(t)
		first := s.expect("find")
		ended := s.close()
		first.answer(t, okay)
		<-ended
		s.nothing()
	})
}

// A brokenListener accepts no client. Its Close returns after done is closed.
type brokenListener struct {
	net.Listener
	done chan struct{}
}

func (l *brokenListener) Accept() (net.Conn, error) { return nil, errors.New("no free descriptor") }

func (l *brokenListener) Close() error {
	<-l.done
	return nil
}

// Close returns after the listener is closed, even if Accept fails. So its port is free then.
func TestFront_Close_AcceptFails_ClosesTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &brokenListener{done: make(chan struct{})}
		none := func(context.Context) (net.Conn, error) { return nil, errors.New("no backend") }
		f := configserver.NewFront(l, none, 1, zerolog.Nop())
		ended := make(chan struct{})
		go func() {
			f.Close(t.Context())
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the front is closed, and its listener is open")
		default:
		}
		close(l.done)
		<-ended
	})
}

func TestFront_Close_ContextEnds_CutsOff(t *testing.T) {
	play(t, 10, func(s *stage) {
		a, b := s.connect(false), s.connect(false)
		a.send(insertOne, 0)
		s.expect("insert")
		b.send(insertOne, 0)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.front.Close(ctx)
		if !a.gone() || !b.gone() {
			t.Error("clients are still connected")
		}
		s.nothing() // the waiting write does not pass
	})
}

func TestFront_BuildInfo_CarriesTheFront(t *testing.T) {
	play(t, 10, func(s *stage) {
		c := s.connect(false)
		info := bson.D{{Key: "version", Value: "7"}, {Key: "ok", Value: 1.0}}
		for _, command := range []string{"buildInfo", "hello"} {
			c.send(d(command, 1), 0)
			s.expect(command).answer(t, info)
			reply := c.reply()
			var got bson.M
			assert.Must(t, bson.Unmarshal(reply[21:], &got))
			marked, _ := got["mongodlmFront"].(bool)
			if marked != (command == "buildInfo") || got["version"] != "7" || got["ok"] != 1.0 {
				t.Errorf("%s: %v", command, got)
			}
		}
	})
}
