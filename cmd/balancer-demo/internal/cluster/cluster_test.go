package cluster_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

const goodChunk = `{"_id": "c1", "ns": "db.x", "shard": "a", "min": {"x": {"$minKey": 1}},
	"max": {"x": {"$maxKey": 1}}, "lastmod": {"$timestamp": {"t": 3, "i": 4}}, "jumbo": true,
	"fence": 7}`

const others = `{"_id": "a", "host": "h"}
{"_id": "db.x", "key": {"x": 1}}
`

func TestLoad_GoodChunk_ReadsEveryField(t *testing.T) {
	t.Parallel()
	all := assert.Value(load(others + goodChunk))(t)
	c := all.Chunks[0]
	if c.Name() != "c1" || c.NS != "db.x" || c.Shard != "a" || !c.Jumbo || c.Fence != 7 ||
		c.Lastmod != (bson.Timestamp{T: 3, I: 4}) || c.Min != `{"x": {"$minKey":1}}` {
		t.Errorf("got %+v", c)
	}
}

// The error for an invalid document names its collection, its _id and the field.
func TestLoad_BadFields_NameCollectionIDAndField(t *testing.T) {
	t.Parallel()
	chunk := func(old, replacement string) string {
		return others + strings.Replace(goodChunk, old, replacement, 1)
	}
	const stamp = `{"$timestamp": {"t": 3, "i": 4}}`
	for name, test := range map[string]struct{ collection, id, field, text string }{
		"chunk without _id":   {"chunks", "", "_id", chunk(`"_id": "c1",`, "")},
		"chunk without ns":    {"chunks", "c1", "uuid", chunk(`"ns": "db.x",`, "")},
		"chunk with ns 5":     {"chunks", "c1", "ns", chunk(`"ns": "db.x"`, `"ns": 5`)},
		"chunk with uuid 5":   {"chunks", "c1", "uuid", chunk(`"ns": "db.x"`, `"uuid": 5`)},
		"chunk with min 5":    {"chunks", "c1", "min", chunk(`{"x": {"$minKey": 1}}`, "5")},
		"chunk with max {}":   {"chunks", "c1", "max", chunk(`{"x": {"$maxKey": 1}}`, "{}")},
		"chunk with a text":   {"chunks", "c1", "max", chunk(`{"x": {"$maxKey": 1}}`, `"{x"`)},
		"chunk on shard ''":   {"chunks", "c1", "shard", chunk(`"shard": "a"`, `"shard": ""`)},
		"chunk on shard 5":    {"chunks", "c1", "shard", chunk(`"shard": "a"`, `"shard": 5`)},
		"chunk with a Date":   {"chunks", "c1", "lastmod", chunk(stamp, `{"$date": 5}`)},
		"chunk with jumbo ''": {"chunks", "c1", "jumbo", chunk("true", `"true"`)},
		"chunk with fence ½":  {"chunks", "c1", "fence", chunk("7", "7.5")},
		"chunk with fence ''": {"chunks", "c1", "fence", chunk("7", `"7"`)},
		"shard with _id 5":    {"shards", `{"$numberInt":"5"}`, "_id", `{"_id": 5, "host": "h"}`},
		"shard with draining": {"shards", "a", "draining", `{"_id": "a", "host": "h", "draining": "no"}`},
		"collection, no key": {"collections", "db.y", "key", others + goodChunk +
			`{"_id": "db.y", "dropped": false}`},
		"collection, key 5": {"collections", "db.y", "key", others + goodChunk +
			`{"_id": "db.y", "key": 5}`},
		"collection, noBalance": {"collections", "db.x", "noBalance",
			`{"_id": "db.x", "key": {"x": 1}, "noBalance": []}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(test.text)
			var bad *catalog.MalformedError
			if !errors.As(err, &bad) {
				t.Fatalf("want a *MalformedError, got %v", err)
			}
			got := fmt.Sprintf("%s %s %s", bad.Collection, bad.ID, bad.Field)
			want := fmt.Sprintf("%s %s %s", test.collection, test.id, test.field)
			if got != want {
				t.Errorf("want %q, got %q (%v)", want, got, err)
			}
		})
	}
}

func TestAssemble_WholeIsWrong_NamesTheDocument(t *testing.T) {
	t.Parallel()
	shards := map[string]string{"a": "", "b": ""}
	tests := map[string]struct {
		spoil func(*cluster.Cluster)
		parts []string
	}{
		"shard twice": {func(c *cluster.Cluster) { c.Shards[1] = c.Shards[0] },
			[]string{"shards", "_id", "twice"}},
		"collection twice": {
			func(c *cluster.Cluster) { c.Collections = append(c.Collections, c.Collections[0]) },
			[]string{"collections", `"db.x"`, "twice"}},
		"chunk twice": {func(c *cluster.Cluster) { c.Chunks = append(c.Chunks, c.Chunks[1]) },
			[]string{"chunks", `"db.x-1"`, "twice"}},
		"unknown shard": {func(c *cluster.Cluster) { c.Chunks[1].Shard = "zz" },
			[]string{"chunks", `"db.x-1"`, "shard", "zz", "config.shards"}},
		"unknown collection": {func(c *cluster.Cluster) { c.Chunks[1].NS = "db.y" },
			[]string{"chunks", `"db.x-1"`, "ns", "db.y", "config.collections"}},
		"no chunk": {func(c *cluster.Cluster) { c.Chunks = nil },
			[]string{"collections", `"db.x"`, "no chunk"}},
		"gap": {func(c *cluster.Cluster) { c.Chunks = append(c.Chunks[:1:1], c.Chunks[2:]...) },
			[]string{"chunks", `"db.x-0"`, "max", "gap"}},
		"overlap": {func(c *cluster.Cluster) { c.Chunks[1].Max = c.Chunks[2].Max },
			[]string{"chunks", `"db.x-2"`, "min", "overlap"}},
		"overlap that ends nowhere": {func(c *cluster.Cluster) { c.Chunks[1].Max = `{"x": 2.5}` },
			[]string{"chunks", `"db.x-1"`, "max", "overlap"}},
		"two begin at one place": {func(c *cluster.Cluster) { c.Chunks[2].Min = c.Chunks[1].Min },
			[]string{"chunks", `"db.x-2"`, "min", "db.x-1"}},
		"first missing": {func(c *cluster.Cluster) { c.Chunks = c.Chunks[1:] },
			[]string{"collections", `"db.x"`, "MinKey"}},
		"last missing": {func(c *cluster.Cluster) { c.Chunks = c.Chunks[:3] },
			[]string{"chunks", `"db.x-2"`, "max", "gap"}},
		"empty chunk": {func(c *cluster.Cluster) { c.Chunks[1].Max = c.Chunks[1].Min },
			[]string{"chunks", `"db.x-1"`, "max", "overlap"}},
		"other key": {func(c *cluster.Cluster) { c.Chunks[1].Min = `{"y": 1}` },
			[]string{"chunks", `"db.x-0"`, "max", "gap"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := metadata(t, shards, layout{"db.x", "", []onShard{{"a", 2, false}, {"b", 2, false}}})
			test.spoil(&c)
			_, err := cluster.Assemble(c)
			wantError(t, err, test.parts...)
		})
	}
}

// Documents are read back unchanged, in any order, when bounds and keys are stored as strings.
func TestAssemble_EveryDocumentOfTheSample_ReadsBackTheSame(t *testing.T) {
	t.Parallel()
	want, err := cluster.Sample()
	assert.Must(t, err)
	got := cluster.Cluster{
		Shards: stored(t, want.Shards), Collections: stored(t, want.Collections),
		Chunks: stored(t, want.Chunks),
	}
	if got, err = cluster.Assemble(got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("want\n%+v\ngot\n%+v", want, got)
	}
	if _, isText := marshal(t, want.Chunks[0]).Lookup("min").StringValueOK(); !isText {
		t.Error("min is stored as no text")
	}
	n := stored(t, []cluster.Collection{{NS: "db.x", Key: `{"a.b": 1}`}})[0]
	assert.Equal(t, n.Key, `{"a.b": 1}`, "a key with a dot: %q, want %q")
}

// stored encodes documents and decodes them again, in reverse order.
func stored[T any](t *testing.T, documents []T) []T {
	t.Helper()
	var back []T
	for _, d := range slices.Backward(documents) {
		var one T
		assert.Must(t, bson.Unmarshal(marshal(t, d), &one))
		back = append(back, one)
	}
	return back
}
