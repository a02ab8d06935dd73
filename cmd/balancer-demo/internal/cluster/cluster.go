package cluster

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Cluster is the metadata of a sharded cluster, understood. Its slices are in the order in
// which the documents came; nothing in this package changes them.
type Cluster struct {
	Shards      []Shard
	Collections []Collection
	Chunks      []Chunk
}

// A Shard is a document of config.shards.
type Shard struct {
	ID       string
	Host     string
	Draining bool
	MaxSize  int64 // MB; 0 means no limit
	Raw      bson.Raw
}

// A Collection is a document of config.collections.
type Collection struct {
	NS        string // "<database>.<collection>", the _id
	Key       bson.Raw
	Dropped   bool
	NoBalance bool
	UUID      string // its 16 bytes; empty when the document has none
	Raw       bson.Raw
}

// A Chunk is a document of config.chunks.
type Chunk struct {
	ID    bson.RawValue // a string before MongoDB 4.4, an ObjectId since
	NS    string        // from the document, or by way of UUID
	UUID  string        // its 16 bytes; MongoDB 5.0 and later write it in place of ns
	Min   bson.Raw      // inclusive
	Max   bson.Raw      // exclusive
	Shard string
	// Lastmod is the chunk's version: T counts migrations, I counts splits.
	Lastmod bson.Timestamp
	Jumbo   bool
	Fence   int64 // of the holder that moved it last; 0 when none of ours has
	Raw     bson.Raw
}

// Name is the _id for people: a string as it is, all else as extended JSON. Two chunks of a
// cluster never share one.
func (c Chunk) Name() string { return idText(c.ID) }

// ParseShard understands a document of config.shards. Error: *catalog.MalformedError.
func ParseShard(raw bson.Raw) (Shard, error) {
	d := open(ShardsCollection, raw)
	s := Shard{
		ID:       d.text("_id"),
		Host:     d.text("host"),
		Draining: d.flag("draining"),
		MaxSize:  d.whole("maxSize"),
		Raw:      raw,
	}
	return s, d.err()
}

// ParseCollection understands a document of config.collections. A dropped one needs no key.
// Error: *catalog.MalformedError.
func ParseCollection(raw bson.Raw) (Collection, error) {
	d := open(CollectionsCollection, raw)
	c := Collection{
		NS:        d.text("_id"),
		Dropped:   d.flag("dropped"),
		NoBalance: d.flag("noBalance"),
		UUID:      d.uuid("uuid"),
		Raw:       raw,
	}
	if !c.Dropped {
		c.Key = d.inner("key")
	}
	return c, d.err()
}

// ParseChunk understands a document of config.chunks, with ns (before MongoDB 5.0) or uuid. NS
// stays empty when there is only a uuid; Assemble fills it in. Error: *catalog.MalformedError.
func ParseChunk(raw bson.Raw) (Chunk, error) {
	d := open(ChunksCollection, raw)
	c := Chunk{
		ID:      d.fields["_id"],
		NS:      d.optionalText("ns"),
		UUID:    d.uuid("uuid"),
		Min:     d.inner("min"),
		Max:     d.inner("max"),
		Shard:   d.text("shard"),
		Lastmod: d.stamp("lastmod", true),
		Jumbo:   d.flag("jumbo"),
		Fence:   d.whole("fence"),
		Raw:     raw,
	}
	if c.NS == "" && c.UUID == "" {
		d.fail("ns", "is missing, and so is uuid; one of them must name the collection")
	}
	for _, bound := range []struct {
		field string
		raw   bson.Raw
	}{{"min", c.Min}, {"max", c.Max}} {
		if d.bad == nil && !comparable(bound.raw) {
			d.fail(bound.field, "has a value of a type that is not supported as a bound")
		}
	}
	return c, d.err()
}

// Parse understands documents of the three collections, in any order, and checks the whole; see
// Assemble. The shape tells what a document is: a chunk has min, max and shard; a shard has host; a
// collection has key or dropped.
func Parse(raws []bson.Raw) (Cluster, error) {
	var c Cluster
	for _, raw := range raws {
		if err := c.add(raw); err != nil {
			return Cluster{}, err
		}
	}
	return Assemble(c)
}

// add parses a document as one of the collection that its shape tells.
func (c *Cluster) add(raw bson.Raw) error {
	has := func(field string) bool { return raw.Lookup(field).Type != 0 }
	switch {
	case has("min") && has("max") && has("shard"):
		chunk, err := ParseChunk(raw)
		c.Chunks = append(c.Chunks, chunk)
		return err
	case has("host"):
		shard, err := ParseShard(raw)
		c.Shards = append(c.Shards, shard)
		return err
	case has("key") || has("dropped"):
		collection, err := ParseCollection(raw)
		c.Collections = append(c.Collections, collection)
		return err
	}
	return fmt.Errorf("the document with _id %s looks like none of config.shards, "+
		"config.collections and config.chunks; remove it", quoted(idText(raw.Lookup("_id"))))
}

// Assemble gives every chunk that has only a uuid the name of its collection and checks the whole
// with Validate. c itself stays as it is.
func Assemble(c Cluster) (Cluster, error) {
	names := map[string]string{}
	for _, collection := range c.Collections {
		if collection.UUID != "" {
			names[collection.UUID] = collection.NS
		}
	}
	chunks := make([]Chunk, len(c.Chunks))
	copy(chunks, c.Chunks)
	for i, chunk := range chunks {
		if chunk.NS != "" {
			continue
		}
		name, ok := names[chunk.UUID]
		if !ok {
			return Cluster{}, broken(chunk, "uuid", "is that of no collection in config.collections")
		}
		chunks[i].NS = name
	}
	c.Chunks = chunks
	if err := c.Validate(); err != nil {
		return Cluster{}, err
	}
	return c, nil
}

// Documents returns the documents as they came, by collection.
func (c Cluster) Documents() map[string][]bson.Raw {
	all := map[string][]bson.Raw{}
	for _, d := range c.Shards {
		all[ShardsCollection] = append(all[ShardsCollection], d.Raw)
	}
	for _, d := range c.Collections {
		all[CollectionsCollection] = append(all[CollectionsCollection], d.Raw)
	}
	for _, d := range c.Chunks {
		all[ChunksCollection] = append(all[ChunksCollection], d.Raw)
	}
	return all
}

// Counts returns how many chunks of each namespace lie on each shard: Counts()[shard][ns]. Every
// shard has an entry.
func (c Cluster) Counts() map[string]map[string]int {
	counts := make(map[string]map[string]int, len(c.Shards))
	for _, s := range c.Shards {
		counts[s.ID] = map[string]int{}
	}
	for _, chunk := range c.Chunks {
		counts[chunk.Shard][chunk.NS]++
	}
	return counts
}

// Stored returns a document as a server that knows neither MinKey nor dotted field names can keep
// it: min, max and key as texts of canonical extended JSON, everything else as it is. The parsers
// of this package read both forms.
func Stored(raw bson.Raw) (bson.D, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("cluster: store document: %w", err)
	}
	doc := make(bson.D, 0, len(elements))
	for _, e := range elements {
		inner, ok := e.Value().DocumentOK()
		switch key := e.Key(); {
		case ok && (key == "min" || key == "max" || key == "key"):
			doc = append(doc, bson.E{Key: key, Value: inner.String()})
		default:
			doc = append(doc, bson.E{Key: key, Value: e.Value()})
		}
	}
	return doc, nil
}
