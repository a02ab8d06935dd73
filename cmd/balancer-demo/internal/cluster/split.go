package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Bounds of a cluster file. A document of the three collections has a few hundred bytes.
const (
	maxDocumentBytes = 1 << 20
	maxDepth         = 64
	maxDocuments     = 2_000_000
)

// An inputError is what a splitter says of a text that is no sequence of documents.
type inputError struct {
	line    int
	problem string
}

func (e *inputError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.problem) }

// A splitter cuts a text into its JSON documents, however they are laid out: one per line, over
// several lines, or as elements of an array. It knows only braces and strings; whether a document
// is good JSON its parser has to say. It never holds more than one document.
type splitter struct {
	in      *bufio.Reader
	line    int
	inArray bool
	comma   bool // a comma was read and its document has not come yet
	fresh   bool // no document has come in this array yet
	count   int
}

func newSplitter(r io.Reader) *splitter {
	return &splitter{in: bufio.NewReader(r), line: 1}
}

// next returns the next document and the line it begins in; io.EOF at the end.
func (s *splitter) next() (doc []byte, line int, err error) {
	for {
		b, err := s.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && s.inArray:
			return nil, 0, s.fail("the array is not closed with ]; is the file cut off?")
		case err != nil:
			return nil, 0, err
		}
		switch b {
		case '\n':
			s.line++
		case ' ', '\t', '\r':
		case '{':
			if s.inArray && !s.fresh && !s.comma {
				return nil, 0, s.fail("a comma is missing before this document")
			}
			if s.count++; s.count > maxDocuments {
				return nil, 0, s.fail("there are more than %d documents", maxDocuments)
			}
			s.fresh, s.comma = false, false
			line = s.line
			doc, err = s.document()
			return doc, line, err
		default:
			if err := s.between(b); err != nil {
				return nil, 0, err
			}
		}
	}
}

// between takes what may stand between documents: the signs of an array, and a byte order mark.
func (s *splitter) between(b byte) error {
	switch {
	case b == '[' && !s.inArray:
		s.inArray, s.fresh, s.comma = true, true, false
	case b == ']' && s.inArray && !s.comma:
		s.inArray = false
	case b == ',' && s.inArray && !s.fresh && !s.comma:
		s.comma = true
	case b == 0xEF && s.line == 1 && s.count == 0:
		if rest, err := s.in.Peek(2); err != nil || rest[0] != 0xBB || rest[1] != 0xBF {
			return s.fail("the file is not UTF-8 text; save or export it as JSON in UTF-8")
		}
		_, err := s.in.Discard(2)
		return err
	default:
		return s.fail("%q stands where a document {...} should begin; "+
			"export with mongoexport, with or without --jsonArray", rune(b))
	}
	return nil
}

// document reads to the brace that closes the one that was read.
func (s *splitter) document() ([]byte, error) {
	doc := []byte{'{'}
	start, depth, inString, escaped := s.line, 1, false, false
	for depth > 0 {
		b, err := s.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil, &inputError{start, "the document that begins here has no end; " +
				"is a brace missing, or the file cut off?"}
		case err != nil:
			return nil, err
		}
		if doc = append(doc, b); len(doc) > maxDocumentBytes {
			return nil, &inputError{start, fmt.Sprintf("the document that begins here is larger "+
				"than %d bytes; is a brace or a quote missing?", maxDocumentBytes)}
		}
		switch {
		case b == '\n' && inString:
			return nil, s.fail("a text does not end in its line; a quote is missing")
		case b == '\n':
			s.line++
		case escaped:
			escaped = false
		case b == '\\' && inString:
			escaped = true
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return nil, s.fail("the document is nested deeper than %d levels", maxDepth)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return doc, nil
}

func (s *splitter) fail(format string, args ...any) error {
	return &inputError{s.line, fmt.Sprintf(format, args...)}
}
