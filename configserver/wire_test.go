package configserver_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

func TestParse_Command_ReadOrWrite(t *testing.T) {
	t.Parallel()
	pipeline := func(stages ...bson.D) bson.D {
		all := bson.A{}
		for _, stage := range stages {
			all = append(all, stage)
		}
		return bson.D{{Key: "aggregate", Value: "locks"}, {Key: "pipeline", Value: all}}
	}
	for _, row := range []struct {
		name    string
		command bson.D
		write   bool
	}{
		{"find", findOne, false},
		{"getMore", d("getMore", int64(1)), false},
		{"hello", d("hello", 1), false},
		{"insert", insertOne, true},
		{"findAndModify", d("findAndModify", "locks"), true},
		{"findandmodify", d("findandmodify", "locks"), true},
		{"createIndexes", d("createIndexes", "locks"), true},
		{"an unknown command", d("fInd", "locks"), true},
		{"a write whose second key is a read", append(d("update", "x"), d("find", "x")...), true},
		{"no stage", pipeline(), false},
		{"$group", pipeline(d("$match", bson.D{}), d("$group", bson.D{})), false},
		{"$out", pipeline(d("$match", bson.D{}), d("$out", "copy")), true},
		{"$merge", pipeline(d("$merge", bson.D{})), true},
		{"$merge behind another key", pipeline(append(d("$match", 1), d("$merge", 1)...)), true},
		{"two pipelines", append(pipeline(), pipeline(d("$out", "x"))[1]), true},
	} {
		name, write, silent, _, err := configserver.Parse(message(t, 1, row.command, 0))
		if err != nil || silent || write != row.write || name != row.command[0].Key {
			t.Errorf("%s: got %q, write %t, %v", row.name, name, write, err)
		}
	}
}

// section appends a section of kind 1, a sequence of documents, to a message.
func section(frame []byte, name string, documents ...[]byte) []byte {
	content := append(append([]byte(name), 0), bytes.Join(documents, nil)...)
	frame = append(frame, 1)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(content)+4))
	frame = append(frame, content...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)))
	return frame
}

func TestParse_WholeMessages(t *testing.T) {
	t.Parallel()
	document := assert.Value(bson.Marshal(okay))(t)
	plain := message(t, 1, insertOne, 0)
	aggregate := message(t, 1, d("aggregate", "x"), 0)
	for _, row := range []struct {
		name        string
		frame       []byte
		good, write bool
	}{
		{"a sequence", section(plain, "documents", document, document), true, true},
		{"an empty sequence", section(plain, "documents"), true, true},
		{"a sequence with a checksum", withFlags(section(plain, "documents", document), 1), true, true},
		{"aggregate with a sequence", section(aggregate, "pipeline", document), true, true},
		{"aggregate without", aggregate, true, false},
		{"a sequence without a name", section(plain, "", document), false, false},
		{"a sequence with half a document", section(plain, "x", document[:9]), false, false},
		{"two commands", twice(plain), false, false},
		{"length 0", make([]byte, 16), false, false},
		{"length -1", edit(plain, 0, 0xff, 0xff, 0xff, 0xff), false, false},
		{"length 48 MB + 1", edit(plain, 0, 0x01, 0x6c, 0xdc, 0x02), false, false},
		{"header only", edit(plain[:16], 0, 16), false, false},
		{"opcode compressed", edit(plain, 12, 0xdc, 0x07), false, false},
		{"opcode 0", edit(plain, 12, 0, 0), false, false},
		{"unknown flag", edit(plain, 16, 1<<3), false, false},
		{"wrong checksum", edit(message(t, 1, insertOne, flagChecksum), 21+8, 'x'), false, false},
		{"section kind 2", edit(plain, 20, 2), false, false},
		{"document too long", edit(plain, 21, 0xff), false, false},
	} {
		frame, err := configserver.ReadFrame(bytes.NewReader(row.frame))
		write := false
		if err == nil {
			_, write, _, _, err = configserver.Parse(frame)
		}
		if (err == nil) != row.good || write != row.write {
			t.Errorf("%s: write %t, %v", row.name, write, err)
		}
		if err != nil && !errors.Is(err, configserver.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", row.name, err)
		}
	}
}

// The result contains the section of the message twice.
func twice(frame []byte) []byte {
	frame = append(bytes.Clone(frame), frame[20:]...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)))
	return frame
}

func TestParse_Nesting_BoundedAsInMongoDB(t *testing.T) {
	t.Parallel()
	for levels, good := range map[int]bool{199: true, 200: false, 100_000: false} {
		_, _, _, _, err := configserver.Parse(configserver.NewMsg(1, nested(levels)))
		if (err == nil) != good {
			t.Errorf("%d levels inside the command: %v", levels, err)
		}
	}
}

func nested(levels int) []byte {
	b := make([]byte, 5+levels*8)
	for i := range levels {
		at := i * 7
		binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-i*8))
		b[at+4], b[at+5] = byte(bson.TypeEmbeddedDocument), 'x'
	}
	binary.LittleEndian.PutUint32(b[levels*7:], 5)
	return b
}

func query(t testing.TB, command bson.D) []byte {
	t.Helper()
	document := assert.Value(bson.Marshal(command))(t)
	b := make([]byte, 20)
	b = append(b, "admin.$cmd\x00"...)
	b = append(b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
	b = append(b, document...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint32(b[12:], 2004)
	return b
}

func TestParse_Query_OnlyHandshakesAreReads(t *testing.T) {
	t.Parallel()
	for command, read := range map[string]bool{"isMaster": true, "hello": true, "insert": false} {
		name, write, _, forwarded, err := configserver.Parse(query(t, d(command, 1)))
		if err != nil || name != command || write == read || len(forwarded) == 0 {
			t.Errorf("%s: got %q, write %t, %v", command, name, write, err)
		}
	}
	whole := query(t, d("hello", 1))
	for n := 17; n < len(whole); n++ {
		if _, _, _, _, err := configserver.Parse(bytes.Clone(whole[:n])); err == nil {
			t.Errorf("%d of %d bytes: got no error", n, len(whole))
		}
	}
}

// Parse does not panic on any bytes from a client. If Parse forwards a message, the forwarded
// message parses to the same command.
func FuzzParse(f *testing.F) {
	f.Add(message(f, 1, insertOne, 0))
	f.Add(message(f, 1, findOne, flagChecksum|flagMoreToCome|flagExhaust))
	f.Add(section(message(f, 1, insertOne, 0), "documents", nested(3)))
	f.Add(query(f, d("hello", 1)))
	aggregate := bson.D{{Key: "aggregate", Value: 1}, {Key: "pipeline", Value: bson.A{okay}}}
	f.Add(message(f, 1, aggregate, 0))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for {
			frame, err := configserver.ReadFrame(r)
			if err != nil {
				break
			}
			name, write, _, forwarded, err := configserver.Parse(frame)
			if err != nil {
				assert.MustBe(t, err, configserver.ErrDamaged)
				break
			}
			if int(binary.LittleEndian.Uint32(forwarded)) != len(forwarded) {
				t.Fatalf("length %x of %d bytes", forwarded[:4], len(forwarded))
			}
			name2, write2, silent2, again, err := configserver.Parse(bytes.Clone(forwarded))
			if err != nil || name2 != name || write2 != write || silent2 || !bytes.Equal(again, forwarded) {
				t.Fatalf("parsed again: %q, %t, %t, %v", name2, write2, silent2, err)
			}
		}
	})
}
