package cluster

import (
	"bytes"
	_ "embed" // for the sample
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

//go:embed sample/cluster.json
var sample []byte

// Sample returns a small cluster that is out of balance. It has five shards, one of them draining,
// eight collections (one dropped, one with noBalance) and 612 chunks, four fifths of them on one
// shard. The policy needs 70 rounds to balance it. The sample is an ordinary cluster file.
func Sample() (Cluster, error) { return Load("sample/cluster.json", bytes.NewReader(sample)) }

// errExport is the advice for an input that is not an export.
var errExport = errors.New("export it again with mongoexport, with or without --jsonArray")

// Load reads the metadata of a cluster from the output of mongoexport for config.shards,
// config.collections and config.chunks, one after the other in any order. The documents are
// extended JSON, canonical or relaxed. They are one per line, over several lines (--pretty) or in
// an array (--jsonArray). The fields determine the kind of a document: a chunk has min, max and
// shard; a shard has host; a collection has key or dropped.
//
// An error names the source and the first line of the document or array. It wraps a
// *catalog.MalformedError if a parsed document is invalid, by itself or together with other
// documents.
func Load(name string, source io.Reader) (Cluster, error) {
	name = catalog.Printable(name, 200)
	all, err := io.ReadAll(source)
	if err != nil {
		return Cluster{}, fmt.Errorf("load %s: %w", name, err)
	}
	var c Cluster
	if line, err := c.read(bytes.TrimPrefix(all, []byte("\ufeff"))); err != nil {
		return Cluster{}, fmt.Errorf("load %s:%d: %w", name, line, err)
	}
	for i, n := range []int{len(c.Shards), len(c.Collections), len(c.Chunks)} {
		if n == 0 {
			lacking := []string{ShardsCollection, CollectionsCollection, ChunksCollection}[i]
			return Cluster{}, fmt.Errorf("load %s: there is no document of config.%s; export it too: "+
				"mongoexport -d config -c %[2]s", name, lacking)
		}
	}
	if c, err = Assemble(c); err != nil {
		return Cluster{}, fmt.Errorf("load %s: %w", name, err)
	}
	return c, nil
}

// read appends the documents of a text. With an error it returns the number of the line.
func (c *Cluster) read(all []byte) (line int, err error) {
	values := json.NewDecoder(bytes.NewReader(all))
	for {
		rest := bytes.TrimLeft(all[values.InputOffset():], " \t\r\n")
		line = 1 + bytes.Count(all[:len(all)-len(rest)], []byte("\n"))
		var value json.RawMessage
		if err := values.Decode(&value); errors.Is(err, io.EOF) {
			return line, nil
		} else if err != nil {
			return line, fmt.Errorf("not documents in JSON, or cut off (%w); %w", err, errExport)
		}
		documents := []json.RawMessage{value}
		if value[0] == '[' {
			_ = json.Unmarshal(value, &documents) // the value was decoded before
		}
		for _, document := range documents {
			if err := c.add(document); err != nil {
				return line, err
			}
		}
	}
}

// add parses a document. Its fields determine its collection.
func (c *Cluster) add(document []byte) error {
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON(document, false, &raw); err != nil {
		return fmt.Errorf("not a document in extended JSON: %s; %w", catalog.Printable(err.Error(), 200),
			errExport)
	}
	has := func(field string) bool { return raw.Lookup(field).Type != 0 }
	switch {
	case has("min") && has("max") && has("shard"):
		return parse(ChunksCollection, raw, &c.Chunks)
	case has("host"):
		return parse(ShardsCollection, raw, &c.Shards)
	case has("key") || has("dropped"):
		return parse(CollectionsCollection, raw, &c.Collections)
	}
	return fmt.Errorf("the document with _id %q looks like none of config.shards, config.collections "+
		"and config.chunks; remove it", catalog.Printable(text(raw.Lookup("_id")), 200))
}

// parse appends a document to the list of its collection.
func parse[T any](collection string, raw bson.Raw, to *[]T) error {
	var document T
	err := bson.Unmarshal(raw, &document)
	if err == nil {
		*to = append(*to, document)
		return nil
	}
	field := ""
	if at := (*bson.DecodeError)(nil); errors.As(err, &at) {
		field, err = strings.Join(at.Keys(), "."), at.Unwrap()
	}
	return malformed(collection, text(raw.Lookup("_id")), field, "cannot be read: %v", err)
}
