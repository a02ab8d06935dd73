package configserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Constants of the MongoDB wire protocol. Every number is little endian. A message has a header and
// a body. The header has four int32: the length of the whole message, the id of the message, the id
// of the message that it replies to, and the opcode.
const (
	headerSize = 16
	// maxMessageSize is the value of maxMessageSizeBytes in the reply to hello. MongoDB and FerretDB
	// reply with the same value.
	maxMessageSize = 48_000_000
	// maxNesting is the maximum depth of nested documents and arrays, as in MongoDB. FerretDB has no
	// maximum, and its time is quadratic in the depth.
	maxNesting = 200
	// minDocumentSize is the size of the empty document in bytes: a length and a closing zero.
	minDocumentSize = 5

	opQuery = 2004 // used only in handshakes
	opMsg   = 2013
)

// The flags of opMsg. A receiver must reject a message with an unknown flag in the lower 16 bits,
// and may ignore unknown higher flags.
const (
	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
	flagsRequired  = 0xffff
)

// errDamaged matches the error of a message that violates the protocol. The front closes the
// connection, because it cannot find the start of the next message.
var errDamaged = errors.New("damaged wire message")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// A frame is one whole wire message with its header. It has at least headerSize bytes.
type frame []byte

func (f frame) int32At(offset int) int32 { return int32(binary.LittleEndian.Uint32(f[offset:])) }
func (f frame) requestID() int32         { return f.int32At(4) }
func (f frame) responseTo() int32        { return f.int32At(8) }
func (f frame) opCode() int32            { return f.int32At(12) }

// readFrame reads one message. It returns exactly io.EOF when r ends between two messages. It
// allocates memory as the bytes arrive, because the length in the header may be wrong.
func readFrame(r io.Reader) (frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := int64(int32(binary.LittleEndian.Uint32(header[:])))
	if length <= headerSize || length > maxMessageSize {
		return nil, damaged("length %d, must be %d to %d", length, headerSize+1, maxMessageSize)
	}
	var whole bytes.Buffer
	whole.Grow(int(min(length, 64<<10)))
	whole.Write(header[:])
	if _, err := io.CopyN(&whole, r, length-headerSize); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return whole.Bytes(), nil
}

// parseMsg parses an opMsg without a checksum. It returns the command document and the number of
// sequences of further documents. It requires exactly one section of kind 0. With two such
// sections, the backend could execute a command that the front did not read.
func parseMsg(f frame) (document bson.Raw, sequences int, err error) {
	for at := headerSize + 4; at < len(f); {
		kind := f[at]
		at++
		switch kind {
		case 0:
			size, err := checkDocument(f[at:])
			if err != nil {
				return nil, 0, err
			}
			if document != nil {
				return nil, 0, damaged("two sections of kind 0")
			}
			document = bson.Raw(f[at : at+size])
			at += size
		case 1:
			size, err := sequenceSize(f[at:])
			if err != nil {
				return nil, 0, err
			}
			sequences++
			at += size
		default:
			return nil, 0, damaged("section of kind %d", kind)
		}
	}
	if document == nil {
		return nil, 0, damaged("no section of kind 0")
	}
	return document, sequences, nil
}

// checkDocument returns the length of the document at the start of b. It also checks the lengths
// and the depth of the nested documents.
func checkDocument(b []byte) (int, error) {
	if len(b) < minDocumentSize {
		return 0, damaged("document of %d bytes", len(b))
	}
	size := int64(int32(binary.LittleEndian.Uint32(b)))
	if size < minDocumentSize || size > int64(len(b)) {
		return 0, damaged("document length %d in %d bytes", size, len(b))
	}
	if b[size-1] != 0 {
		return 0, damaged("document does not end in zero")
	}
	return int(size), checkNested(bson.Raw(b[:size]), 1)
}

func checkNested(document bson.Raw, level int) error {
	if level > maxNesting {
		return damaged("more than %d nested documents", maxNesting)
	}
	elements, err := document.Elements()
	if err != nil {
		return damaged("document: %v", err)
	}
	for _, e := range elements {
		value := e.Value()
		if value.Type != bson.TypeEmbeddedDocument && value.Type != bson.TypeArray {
			continue
		}
		if err := checkNested(bson.Raw(value.Value), level+1); err != nil {
			return err
		}
	}
	return nil
}

// sequenceSize returns the length of the document sequence at the start of b. A sequence begins
// with its whole length as an int32. A name and the documents follow.
func sequenceSize(b []byte) (int, error) {
	if len(b) < 4 {
		return 0, damaged("sequence of %d bytes", len(b))
	}
	size := int64(int32(binary.LittleEndian.Uint32(b)))
	if size < 4 || size > int64(len(b)) {
		return 0, damaged("sequence length %d in %d bytes", size, len(b))
	}
	name := bytes.IndexByte(b[4:size], 0)
	if name < 1 {
		return 0, damaged("sequence without a name")
	}
	for at := int64(4 + name + 1); at < size; {
		n, err := checkDocument(b[at:size])
		if err != nil {
			return 0, err
		}
		at += int64(n)
	}
	return int(size), nil
}

// stripFlags checks the flags of an opMsg, verifies and removes its checksum, and clears the flags.
// It returns the shorter message, which shares f's memory, and the original flags.
func stripFlags(f frame) (frame, uint32, error) {
	if len(f) < headerSize+4 {
		return nil, 0, damaged("message of %d bytes", len(f))
	}
	flags := binary.LittleEndian.Uint32(f[headerSize:])
	if unknown := flags & flagsRequired &^ (flagChecksum | flagMoreToCome); unknown != 0 {
		return nil, 0, damaged("unknown flags %#x", unknown)
	}
	if flags&flagChecksum != 0 {
		end := len(f) - 4
		if end < headerSize+4 {
			return nil, 0, damaged("message of %d bytes with a checksum", len(f))
		}
		sum := crc32.Checksum(f[:end], crc32.MakeTable(crc32.Castagnoli))
		if sum != binary.LittleEndian.Uint32(f[end:]) {
			return nil, 0, damaged("wrong checksum")
		}
		f = f[:end]
		binary.LittleEndian.PutUint32(f, uint32(end))
	}
	binary.LittleEndian.PutUint32(f[headerSize:], 0)
	return f, flags, nil
}

// parseQuery returns the document of an opQuery. The document follows the flags, a collection name
// and two int32. parseQuery ignores a second document.
func parseQuery(f frame) (bson.Raw, error) {
	rest := f[headerSize:]
	if len(rest) < 4 {
		return nil, damaged("query of %d bytes", len(f))
	}
	rest = rest[4:]
	name := bytes.IndexByte(rest, 0)
	if name < 0 || len(rest) < name+1+8 {
		return nil, damaged("query without a collection")
	}
	rest = rest[name+1+8:]
	size, err := checkDocument(rest)
	if err != nil {
		return nil, err
	}
	return bson.Raw(rest[:size]), nil
}

func newMsg(requestID int32, document bson.Raw) frame {
	f := make(frame, headerSize+4+1, headerSize+4+1+len(document))
	f = append(f, document...)
	binary.LittleEndian.PutUint32(f, uint32(len(f)))
	binary.LittleEndian.PutUint32(f[4:], uint32(requestID))
	binary.LittleEndian.PutUint32(f[12:], opMsg)
	return f
}
