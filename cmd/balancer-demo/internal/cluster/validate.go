package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mongodlm/catalog"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Validate checks what no single document can show: no _id occurs twice, every chunk lies on a
// shard that exists and belongs to a collection that exists, and the chunks of each collection
// cover its keys from MinKey to MaxKey without gap and overlap. The first thing that is wrong is
// returned as a *catalog.MalformedError.
func (c Cluster) Validate() error {
	shards := map[string]bool{}
	for _, s := range c.Shards {
		if shards[s.ID] {
			return malformed(ShardsCollection, s.ID, "_id", "occurs twice")
		}
		shards[s.ID] = true
	}
	collections := map[string]bool{}
	for _, n := range c.Collections {
		if collections[n.NS] {
			return malformed(CollectionsCollection, n.NS, "_id", "occurs twice")
		}
		collections[n.NS] = true
	}
	ids := map[string]bool{}
	for _, chunk := range c.Chunks {
		switch name := chunk.Name(); {
		case ids[name]:
			return broken(chunk, "_id", "occurs twice")
		case !shards[chunk.Shard]:
			return broken(chunk, "shard", "names %s, which is not in config.shards",
				quoted(chunk.Shard))
		case !collections[chunk.NS]:
			return broken(chunk, "ns", "names %s, which is not in config.collections",
				quoted(chunk.NS))
		default:
			ids[name] = true
		}
	}
	byNS := c.sortedChunks()
	for _, n := range c.Collections {
		if n.Dropped {
			continue
		}
		if err := covers(n, byNS[n.NS]); err != nil {
			return err
		}
	}
	return nil
}

// covers checks that chunks, in the order of min, cover all keys of the collection.
func covers(n Collection, chunks []Chunk) error {
	if len(chunks) == 0 {
		return malformed(CollectionsCollection, n.NS, "_id", "has no chunk in config.chunks")
	}
	for _, chunk := range chunks {
		if !sameFields(n.Key, chunk.Min) {
			return broken(chunk, "min", "does not have the fields of the shard key %s", n.Key)
		}
		if !sameFields(n.Key, chunk.Max) {
			return broken(chunk, "max", "does not have the fields of the shard key %s", n.Key)
		}
	}
	for i, chunk := range chunks {
		if compareBounds(chunk.Min, chunk.Max) >= 0 {
			return broken(chunk, "max", "must be greater than min")
		}
		if i == 0 {
			continue
		}
		last := chunks[i-1]
		switch c := compareBounds(last.Max, chunk.Min); {
		case c < 0:
			return broken(chunk, "min", "leaves a gap after chunk %s", quoted(last.Name()))
		case c > 0:
			return broken(chunk, "min", "overlaps chunk %s", quoted(last.Name()))
		}
	}
	if first := chunks[0]; !all(first.Min, bson.TypeMinKey) {
		return broken(first, "min", "is the lowest of %s but not MinKey", quoted(n.NS))
	}
	if last := chunks[len(chunks)-1]; !all(last.Max, bson.TypeMaxKey) {
		return broken(last, "max", "is the highest of %s but not MaxKey", quoted(n.NS))
	}
	return nil
}

// sortedChunks returns the chunks of each namespace in the order of min.
func (c Cluster) sortedChunks() map[string][]Chunk {
	byNS := map[string][]Chunk{}
	for _, chunk := range c.Chunks {
		byNS[chunk.NS] = append(byNS[chunk.NS], chunk)
	}
	for _, chunks := range byNS {
		slices.SortFunc(chunks, func(a, b Chunk) int {
			return cmp.Or(compareBounds(a.Min, b.Min), strings.Compare(a.Name(), b.Name()))
		})
	}
	return byNS
}

func sameFields(key, bound bson.Raw) bool {
	want, _ := key.Elements()  // checked when the key was parsed
	got, _ := bound.Elements() // checked when the bound was parsed
	return slices.EqualFunc(want, got, func(a, b bson.RawElement) bool { return a.Key() == b.Key() })
}

func all(bound bson.Raw, t bson.Type) bool {
	elements, _ := bound.Elements() // checked when the bound was parsed
	return !slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		return e.Value().Type != t
	})
}

func quoted(s string) string { return fmt.Sprintf("%q", catalog.Printable(s, 200)) }

func broken(c Chunk, field, format string, args ...any) error {
	return malformed(ChunksCollection, c.Name(), field, format, args...)
}

func malformed(collection, id, field, format string, args ...any) error {
	return &catalog.MalformedError{
		Collection: collection, ID: id, Field: field, Problem: fmt.Sprintf(format, args...),
	}
}
