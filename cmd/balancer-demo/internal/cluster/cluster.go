package cluster

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Names of the collections whose documents this package parses.
const (
	ShardsCollection      = "shards"
	CollectionsCollection = "collections"
	ChunksCollection      = "chunks"
	ChangelogCollection   = "changelog"
	RoundsCollection      = "rounds"
)

// A Cluster is the metadata of a sharded cluster. Assemble validates and sorts it.
type Cluster struct {
	Shards      []Shard
	Collections []Collection
	Chunks      []Chunk
}

// A Shard is a document of config.shards.
type Shard struct {
	ID       string `bson:"_id"`
	Host     string `bson:"host"`
	Draining bool   `bson:"draining,omitempty"`
}

// A Collection is a document of config.collections.
type Collection struct {
	NS        string      `bson:"_id"` // "<database>.<collection>"
	Key       Text        `bson:"key,omitempty"`
	Dropped   bool        `bson:"dropped"`
	NoBalance bool        `bson:"noBalance,omitempty"`
	UUID      bson.Binary `bson:"uuid,omitempty"`
}

// A Chunk is a document of config.chunks.
type Chunk struct {
	ID    bson.RawValue `bson:"_id"`            // a string before MongoDB 4.4, an ObjectId since
	NS    string        `bson:"ns,omitempty"`   // Assemble sets it from UUID
	UUID  bson.Binary   `bson:"uuid,omitempty"` // in place of ns from MongoDB 5.0 on
	Min   Text          `bson:"min"`            // inclusive
	Max   Text          `bson:"max"`            // exclusive
	Shard string        `bson:"shard"`
	// Lastmod is the chunk's version: T counts migrations, I counts splits.
	Lastmod bson.Timestamp `bson:"lastmod"`
	Jumbo   bool           `bson:"jumbo,omitempty"`
	Fence   int64          `bson:"fence,omitempty"` // of the last move by the demo, or 0
}

// A Text is a document as canonical extended JSON. It is stored as a string, because the embedded
// config server stores neither MinKey nor field names with dots. Decoding also accepts a document.
type Text string

// UnmarshalBSONValue implements [bson.ValueUnmarshaler].
func (t *Text) UnmarshalBSONValue(kind byte, data []byte) error {
	v := bson.RawValue{Type: bson.Type(kind), Value: data}
	if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeString {
		return fmt.Errorf("it must be a document, not %v", v.Type)
	}
	*t = Text(text(v))
	return nil
}

// Name returns the _id for display: a string unchanged, everything else as extended JSON. Two
// chunks of a cluster have different names.
func (c Chunk) Name() string { return text(c.ID) }

// text returns a value as text: a string unchanged, everything else as canonical extended JSON.
func text(v bson.RawValue) string {
	if s, ok := v.StringValueOK(); ok {
		return s
	}
	return v.String()
}

// Counts returns the number of chunks on each shard.
func (c Cluster) Counts() map[string]int {
	counts := map[string]int{}
	for _, chunk := range c.Chunks {
		counts[chunk.Shard]++
	}
	return counts
}

// Assemble makes a cluster from documents and validates it. Every document has a unique _id. Every
// chunk is on a shard and belongs to an existing collection. The chunks of each collection cover
// its keys from MinKey to MaxKey without gap and overlap. The result has shards and collections in
// the order of their ids, and a collection's chunks in the order of their keys. c itself is
// unchanged. The error is a *catalog.MalformedError for the first problem.
func Assemble(c Cluster) (Cluster, error) {
	c.Shards, c.Collections = slices.Clone(c.Shards), slices.Clone(c.Collections)
	slices.SortFunc(c.Shards, func(a, b Shard) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Collections, func(a, b Collection) int { return strings.Compare(a.NS, b.NS) })
	shards, byUUID, chunks := map[string]bool{}, map[string]string{}, map[string][]Chunk{}
	for _, s := range c.Shards {
		if s.ID == "" || shards[s.ID] {
			return Cluster{}, malformed(ShardsCollection, s.ID, "_id", "is missing, or occurs twice")
		}
		shards[s.ID] = true
	}
	for _, n := range c.Collections {
		if _, twice := chunks[n.NS]; twice || n.NS == "" {
			return Cluster{}, malformed(CollectionsCollection, n.NS, "_id", "is missing, or occurs twice")
		}
		chunks[n.NS] = nil
		if !n.UUID.IsZero() {
			byUUID[string(n.UUID.Data)] = n.NS
		}
	}
	ids := map[string]bool{}
	for _, chunk := range c.Chunks {
		name, field := chunk.Name(), "ns"
		if chunk.NS == "" {
			chunk.NS, field = byUUID[string(chunk.UUID.Data)], "uuid"
		}
		_, known := chunks[chunk.NS]
		switch {
		case chunk.ID.IsZero() || ids[name]:
			return Cluster{}, broken(chunk, "_id", "is missing, or occurs twice")
		case !shards[chunk.Shard]:
			return Cluster{}, broken(chunk, "shard", "names %q, which is not in config.shards",
				catalog.Printable(chunk.Shard, 200))
		case !known:
			return Cluster{}, broken(chunk, field, "names no collection of config.collections: %q",
				catalog.Printable(chunk.NS, 200))
		}
		ids[name] = true
		chunks[chunk.NS] = append(chunks[chunk.NS], chunk)
	}
	c.Chunks = nil
	for _, n := range c.Collections {
		ordered, err := n.ordered(chunks[n.NS])
		if err != nil {
			return Cluster{}, err
		}
		c.Chunks = append(c.Chunks, ordered...)
	}
	return c, nil
}

// ordered returns a collection's chunks in the order of their keys, from MinKey to MaxKey. It
// returns an error unless each chunk starts at the end of the previous one. The chunks of a dropped
// collection are returned unchanged.
func (n Collection) ordered(chunks []Chunk) ([]Chunk, error) {
	if n.Dropped {
		return chunks, nil
	}
	at, end, err := n.limits()
	if err != nil {
		return nil, err
	}
	begins := map[Text]Chunk{}
	for _, chunk := range chunks {
		if other, ok := begins[chunk.Min]; ok {
			return nil, broken(chunk, "min", "is that of chunk %q, too",
				catalog.Printable(other.Name(), 200))
		}
		begins[chunk.Min] = chunk
	}
	var all []Chunk
	for at != end {
		chunk, ok := begins[at]
		switch {
		case !ok && len(all) == 0:
			return nil, malformed(CollectionsCollection, n.NS, "_id", "has no chunk that begins at MinKey")
		case !ok:
			return nil, broken(all[len(all)-1], "max", "is where no chunk begins: a gap, or an overlap")
		}
		delete(begins, at)
		all, at = append(all, chunk), chunk.Max
	}
	for _, chunk := range chunks {
		if _, left := begins[chunk.Min]; left {
			return nil, broken(chunk, "min", "is where no chunk ends: a gap, or an overlap")
		}
	}
	return all, nil
}

// limits returns the lowest and the highest bound of the collection's chunks.
func (n Collection) limits() (lowest, highest Text, err error) {
	var key bson.D
	if bson.UnmarshalExtJSON([]byte(n.Key), false, &key) != nil || len(key) == 0 {
		return "", "", malformed(CollectionsCollection, n.NS, "key",
			"must be a document that is not empty")
	}
	bound := func(v any) Text {
		for i := range key {
			key[i].Value = v
		}
		raw, _ := bson.Marshal(key) // both types can always be written
		return Text(bson.Raw(raw).String())
	}
	return bound(bson.MinKey{}), bound(bson.MaxKey{}), nil
}

func broken(c Chunk, field, format string, args ...any) error {
	return malformed(ChunksCollection, c.Name(), field, format, args...)
}

func malformed(collection, id, field, format string, args ...any) error {
	return &catalog.MalformedError{Collection: collection, ID: id, Field: field,
		Problem: fmt.Sprintf(format, args...)}
}
