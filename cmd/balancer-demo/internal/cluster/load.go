package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A Source is a cluster file, or a part of one, under the name that errors call it.
type Source struct {
	Name string
	Text io.Reader
}

// header is the field of a line that says to which collection the documents after it belong.
const header = "$collection"

// A LoadError says where in which source something is wrong, and what to do about it.
type LoadError struct {
	Source string
	Line   int // where the document begins, or where the text goes wrong; 0 for the whole
	Err    error
}

func (e *LoadError) Error() string {
	name := catalog.Printable(e.Source, 200)
	problem := strings.TrimPrefix(e.Err.Error(), "cluster: ")
	if e.Line == 0 {
		return fmt.Sprintf("cluster: load %s: %s", name, problem)
	}
	return fmt.Sprintf("cluster: load %s:%d: %s", name, e.Line, problem)
}

// Unwrap returns what is wrong, often a *catalog.MalformedError.
func (e *LoadError) Unwrap() error { return e.Err }

// LoadFiles reads a cluster from files; see Load.
func LoadFiles(paths ...string) (Cluster, error) {
	var sources []Source
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return Cluster{}, fmt.Errorf("cluster: load cluster: %w", err)
		}
		defer f.Close() // only read
		sources = append(sources, Source{Name: path, Text: f})
	}
	return Load(sources...)
}

// Load reads the metadata of a cluster from what mongoexport writes for config.shards,
// config.collections and config.chunks: documents in extended JSON, canonical or relaxed, one per
// line, over several lines (--pretty) or in an array (--jsonArray). The three may come in three
// sources, or one after the other in one.
//
// A line {"$collection": "chunks"} says what the documents after it are, up to the next such line
// or the end of the source. Without one the shape says it: a chunk has min, max and shard; a shard
// has host; a collection has key or dropped.
//
// The documents are checked one by one and as a whole (Assemble). Errors: *LoadError with source
// and line, around a *catalog.MalformedError where a document is understood and wrong.
func Load(sources ...Source) (Cluster, error) {
	var c Cluster
	for _, source := range sources {
		if err := c.read(source); err != nil {
			return Cluster{}, err
		}
	}
	var names []string
	for _, source := range sources {
		names = append(names, source.Name)
	}
	whole := strings.Join(names, ", ")
	for _, part := range []struct {
		name  string
		count int
	}{
		{ShardsCollection, len(c.Shards)},
		{CollectionsCollection, len(c.Collections)},
		{ChunksCollection, len(c.Chunks)},
	} {
		if part.count == 0 {
			err := fmt.Errorf("there is no document of config.%s; export it too: "+
				"mongoexport -d config -c %s", part.name, part.name)
			return Cluster{}, &LoadError{Source: whole, Err: err}
		}
	}
	c, err := Assemble(c)
	if err != nil {
		return Cluster{}, &LoadError{Source: whole, Err: err}
	}
	return c, nil
}

// read appends the documents of one source.
func (c *Cluster) read(source Source) error {
	s := newSplitter(source.Text)
	current := ""
	for {
		text, line, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var input *inputError
		switch {
		case errors.As(err, &input):
			return &LoadError{source.Name, input.line, errors.New(input.problem)}
		case err != nil:
			return &LoadError{source.Name, s.line, err}
		}
		raw, err := parseJSON(text)
		if err != nil {
			return &LoadError{source.Name, line, err}
		}
		if v := raw.Lookup(header); v.Type != 0 {
			if current, err = headerName(v); err != nil {
				return &LoadError{source.Name, line, err}
			}
			continue
		}
		if err := c.add(current, raw); err != nil {
			return &LoadError{source.Name, line, err}
		}
	}
}

// add parses a document as one of the collection, or of the one its shape tells.
func (c *Cluster) add(collection string, raw bson.Raw) error {
	if collection == "" {
		collection = shape(raw)
	}
	switch collection {
	case ShardsCollection:
		s, err := ParseShard(raw)
		c.Shards = append(c.Shards, s)
		return err
	case CollectionsCollection:
		n, err := ParseCollection(raw)
		c.Collections = append(c.Collections, n)
		return err
	case ChunksCollection:
		chunk, err := ParseChunk(raw)
		c.Chunks = append(c.Chunks, chunk)
		return err
	}
	return fmt.Errorf(`the document with _id %s looks like none of config.shards, `+
		`config.collections and config.chunks; remove it, or put a line {%q: "chunks"} before it`,
		quoted(idText(raw.Lookup("_id"))), header)
}

// shape tells the collection of a document from its fields; empty when it cannot.
func shape(raw bson.Raw) string {
	has := func(field string) bool { return raw.Lookup(field).Type != 0 }
	switch {
	case has("min") && has("max") && has("shard"):
		return ChunksCollection
	case has("host"):
		return ShardsCollection
	case has("key") || has("dropped"):
		return CollectionsCollection
	}
	return ""
}

func headerName(v bson.RawValue) (string, error) {
	name, _ := v.StringValueOK()
	name = strings.TrimPrefix(name, "config.")
	switch name {
	case ShardsCollection, CollectionsCollection, ChunksCollection:
		return name, nil
	}
	return "", fmt.Errorf("%s must be %q, %q or %q", header,
		ShardsCollection, CollectionsCollection, ChunksCollection)
}

// parseJSON understands one document of extended JSON, canonical or relaxed.
func parseJSON(text []byte) (bson.Raw, error) {
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON(text, false, &raw); err != nil {
		return nil, fmt.Errorf("not a document in extended JSON: %s; export it again with "+
			"mongoexport", catalog.Printable(err.Error(), 200))
	}
	if err := raw.Validate(); err != nil {
		return nil, errors.New("not a document in extended JSON; export it again with mongoexport")
	}
	return raw, nil
}
