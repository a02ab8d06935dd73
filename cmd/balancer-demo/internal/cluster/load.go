package cluster

import (
	"bytes"
	"cmp"
	_ "embed" // for the sample
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

//go:embed sample/cluster.json
var sample []byte

// Sample returns a small cluster that is not balanced. It has five shards, and one of them is
// draining. It has eight collections. One is dropped, and another has the setting noBalance. Four
// fifths of the 612 chunks are on one shard. The policy needs 70 rounds to balance the cluster.
func Sample() (Cluster, error) { return Load("sample/cluster.json", bytes.NewReader(sample)) }

// Load reads the metadata of a cluster from the output of mongoexport for config.shards,
// config.collections and config.chunks. The three outputs may follow each other in any order. Load
// reads extended JSON, with or without the option --jsonArray of mongoexport.
//
// Load recognizes a document by its fields. A document with min, max and shard is a chunk. A
// document with host is a shard. A document with key or dropped is a collection.
//
// Each error contains name. If a document cannot be read, the error also contains the number of the
// document, counted from 1.
func Load(name string, source io.Reader) (Cluster, error) {
	var c Cluster
	err := c.read(source)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("load %s: %s", catalog.Printable(name, 200),
			catalog.Printable(err.Error(), 500))
	}
	return c, nil
}

func (c *Cluster) read(source io.Reader) error {
	values, n := json.NewDecoder(source), 1
	for {
		var value json.RawMessage
		if err := values.Decode(&value); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("document %d: not JSON, or cut off (%w); export it again with mongoexport", n,
				err)
		}
		documents := []json.RawMessage{value}
		if value[0] == '[' {
			_ = json.Unmarshal(value, &documents) // the decoder has validated the value
		}
		for _, document := range documents {
			if err := c.add(document); err != nil {
				return fmt.Errorf("document %d: %w", n, err)
			}
			n++
		}
	}
	return nil
}

// check returns an error if documents are missing, or if a chunk names a missing shard or
// collection. It also sorts the documents and sets the namespaces of the chunks. If an _id is not
// unique, the server refuses the documents.
func (c *Cluster) check() error {
	if len(c.Shards) == 0 || len(c.Collections) == 0 || len(c.Chunks) == 0 {
		return errors.New("it must contain documents of config.shards, config.collections and " +
			"config.chunks; export all three")
	}
	shards, collections, byUUID := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, s := range c.Shards {
		shards[s.ID] = true
	}
	for _, n := range c.Collections {
		collections[n.NS] = true
		if !n.UUID.IsZero() {
			byUUID[string(n.UUID.Data)] = n.NS
		}
	}
	for i := range c.Chunks {
		chunk := &c.Chunks[i]
		chunk.NS = cmp.Or(chunk.NS, byUUID[string(chunk.UUID.Data)])
		if !shards[chunk.Shard] || !collections[chunk.NS] {
			return fmt.Errorf("chunk %q: its shard %q is not in config.shards, or its ns or uuid is not in "+
				"config.collections", chunk.Name(), chunk.Shard)
		}
	}
	slices.SortFunc(c.Shards, func(a, b Shard) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Collections, func(a, b Collection) int { return cmp.Compare(a.NS, b.NS) })
	slices.SortFunc(c.Chunks, func(a, b Chunk) int { return cmp.Compare(a.Name(), b.Name()) })
	return nil
}

func (c *Cluster) add(document []byte) error {
	var raw bson.Raw
	if err := bson.UnmarshalExtJSON(document, false, &raw); err != nil {
		return fmt.Errorf("not a document in extended JSON: %w", err)
	}
	has := func(field string) bool { return raw.Lookup(field).Type != 0 }
	switch {
	case !has("_id"):
	case has("min") && has("max") && has("shard"):
		return parse(raw, &c.Chunks)
	case has("host"):
		return parse(raw, &c.Shards)
	case has("key") || has("dropped"):
		return parse(raw, &c.Collections)
	}
	return fmt.Errorf("the document with _id %q is not from config.shards, config.collections "+
		"or config.chunks; remove it", text(raw.Lookup("_id")))
}

func parse[T any](raw bson.Raw, to *[]T) error {
	var document T
	if err := bson.Unmarshal(raw, &document); err != nil {
		return fmt.Errorf("the document with _id %q: %w", text(raw.Lookup("_id")), err)
	}
	*to = append(*to, document)
	return nil
}
