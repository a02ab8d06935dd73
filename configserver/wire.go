package configserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
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
	for rest := []byte(f[headerSize+4:]); len(rest) > 0; {
		kind := wiremessage.SectionType(rest[0])
		rest = rest[1:]
		switch {
		case kind == wiremessage.SingleDocument && document == nil:
			if document, rest, err = readDocument(rest); err != nil {
				return nil, 0, err
			}
		case kind == wiremessage.DocumentSequence:
			name, documents, after, ok := wiremessage.ReadMsgSectionRawDocumentSequence(rest)
			if !ok || name == "" {
				return nil, 0, damaged("sequence without a name or with a wrong length")
			}
			for len(documents) > 0 {
				if _, documents, err = readDocument(documents); err != nil {
					return nil, 0, err
				}
			}
			sequences++
			rest = after
		default:
			return nil, 0, damaged("section of kind %d", kind)
		}
	}
	if document == nil {
		return nil, 0, damaged("no section of kind 0")
	}
	return document, sequences, nil
}

// readDocument returns the document at the start of b, and the rest of b. It checks the depth
// first, because the validation recurses once per level.
func readDocument(b []byte) (bson.Raw, []byte, error) {
	document, rest, ok := bsoncore.ReadDocument(b)
	if !ok {
		return nil, nil, damaged("document in %d bytes", len(b))
	}
	if err := checkDepth(document, 1); err != nil {
		return nil, nil, err
	}
	if err := document.Validate(); err != nil {
		return nil, nil, damaged("document: %v", err)
	}
	return bson.Raw(document), rest, nil
}

func checkDepth(document bsoncore.Document, level int) error {
	if level > maxNesting || len(document) < minDocumentSize {
		return damaged("document of %d bytes at level %d, at most %d", len(document), level, maxNesting)
	}
	for rest := document[4 : len(document)-1]; len(rest) > 0; {
		element, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return damaged("document of %d bytes with half an element", len(document))
		}
		rest = after
		value := element.Value()
		if value.Type != bsoncore.TypeEmbeddedDocument && value.Type != bsoncore.TypeArray {
			continue
		}
		if err := checkDepth(value.Data, level+1); err != nil {
			return err
		}
	}
	return nil
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
	rest := f[min(len(f), headerSize+4):]
	name := bytes.IndexByte(rest, 0)
	if name < 0 || len(rest) < name+1+8 {
		return nil, damaged("query of %d bytes", len(f))
	}
	document, _, err := readDocument(rest[name+1+8:])
	return document, err
}

func newMsg(requestID, responseTo int32, document bson.Raw) frame {
	length := int32(headerSize + 5 + len(document))
	f := wiremessage.AppendHeader(nil, length, requestID, responseTo, wiremessage.OpMsg)
	f = append(f, 0, 0, 0, 0, byte(wiremessage.SingleDocument)) // without flags
	return append(f, document...)
}
