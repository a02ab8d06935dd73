package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
)

const goodChunk = `{"_id": "c1", "ns": "db.x", "min": {"x": 1}, "max": {"x": 2}, "shard": "a",
	"lastmod": {"$timestamp": {"t": 3, "i": 4}}, "jumbo": true, "fence": 7}`

func TestParseChunk_Good_ReadsEveryField(t *testing.T) {
	t.Parallel()
	c, err := cluster.ParseChunk(raw(t, goodChunk))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "c1" || c.NS != "db.x" || c.Shard != "a" || !c.Jumbo || c.Fence != 7 ||
		c.Lastmod != (bson.Timestamp{T: 3, I: 4}) || c.Min.Lookup("x").Int32() != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestParse_BadFields_NameCollectionIDAndField(t *testing.T) {
	t.Parallel()
	chunk := func(old, replacement string) string {
		return strings.Replace(goodChunk, old, replacement, 1)
	}
	const stamp = `{"$timestamp": {"t": 3, "i": 4}}`
	const regex = `{"x": {"$regularExpression": {"pattern": "a", "options": ""}}}`
	tests := map[string]struct{ collection, id, field, text string }{
		"chunk without _id":   {"chunks", "", "_id", chunk(`"_id": "c1",`, "")},
		"chunk without ns":    {"chunks", "c1", "ns", chunk(`"ns": "db.x",`, "")},
		"chunk with ns 5":     {"chunks", "c1", "ns", chunk(`"ns": "db.x"`, `"ns": 5`)},
		"chunk with uuid 5":   {"chunks", "c1", "uuid", chunk(`"ns": "db.x"`, `"uuid": 5`)},
		"chunk without min":   {"chunks", "c1", "min", chunk(`"min": {"x": 1},`, "")},
		"chunk with min {}":   {"chunks", "c1", "min", chunk(`{"x": 1}`, "{}")},
		"chunk with min []":   {"chunks", "c1", "min", chunk(`{"x": 1}`, "[1]")},
		"chunk with a regex":  {"chunks", "c1", "min", chunk(`{"x": 1}`, regex)},
		"chunk with bad text": {"chunks", "c1", "max", chunk(`{"x": 2}`, `"{x"`)},
		"chunk without shard": {"chunks", "c1", "shard", chunk(`"shard": "a",`, "")},
		"chunk on shard ''":   {"chunks", "c1", "shard", chunk(`"shard": "a"`, `"shard": ""`)},
		"chunk with a Date":   {"chunks", "c1", "lastmod", chunk(stamp, `{"$date": 5}`)},
		"chunk with jumbo ''": {"chunks", "c1", "jumbo", chunk("true", `"true"`)},
		"chunk with fence -7": {"chunks", "c1", "fence", chunk("7", "-7")},
		"chunk with fence ½":  {"chunks", "c1", "fence", chunk("7", "7.5")},
		"chunk with fence ''": {"chunks", "c1", "fence", chunk("7", `"7"`)},
		"shard without host":  {"shards", "a", "host", `{"_id": "a"}`},
		"shard with _id 5":    {"shards", `{"$numberInt":"5"}`, "_id", `{"_id": 5, "host": "h"}`},
		"shard with draining": {"shards", "a", "draining", `{"_id": "a", "host": "h", "draining": "no"}`},
		"shard with maxSize":  {"shards", "a", "maxSize", `{"_id": "a", "host": "h", "maxSize": true}`},
		"collection, no key":  {"collections", "db.x", "key", `{"_id": "db.x", "dropped": false}`},
		"collection, noBalance": {"collections", "db.x", "noBalance",
			`{"_id": "db.x", "key": {"x": 1}, "noBalance": []}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			switch doc := raw(t, test.text); test.collection {
			case "chunks":
				_, err = cluster.ParseChunk(doc)
			case "shards":
				_, err = cluster.ParseShard(doc)
			case "collections":
				_, err = cluster.ParseCollection(doc)
			}
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
	_, err := cluster.ParseChunk(bson.Raw{1, 2, 3})
	wantError(t, err, "chunks", "damaged")
}

func TestValidate_WholeIsWrong_NamesTheDocument(t *testing.T) {
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
			[]string{"chunks", `"db.x-2"`, "min", "gap", "db.x-0"}},
		"overlap": {func(c *cluster.Cluster) { c.Chunks[1].Max = raw(t, `{"x": 2.5}`) },
			[]string{"chunks", `"db.x-2"`, "min", "overlaps", "db.x-1"}},
		"first missing": {func(c *cluster.Cluster) { c.Chunks = c.Chunks[1:] },
			[]string{"chunks", `"db.x-1"`, "min", "MinKey"}},
		"last missing": {func(c *cluster.Cluster) { c.Chunks = c.Chunks[:3] },
			[]string{"chunks", `"db.x-2"`, "max", "MaxKey"}},
		"empty chunk": {func(c *cluster.Cluster) { c.Chunks[1].Max = c.Chunks[1].Min },
			[]string{"chunks", `"db.x-1"`, "max", "greater"}},
		"other key": {func(c *cluster.Cluster) { c.Chunks[1].Min = raw(t, `{"y": 1}`) },
			[]string{"chunks", `"db.x-1"`, "min", "shard key"}},
		"longer key": {func(c *cluster.Cluster) { c.Chunks[1].Max = raw(t, `{"x": 2, "y": 1}`) },
			[]string{"chunks", `"db.x-1"`, "max", "shard key"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := metadata(t, shards, layout{"db.x", "", []onShard{{"a", 2, false}, {"b", 2, false}}})
			test.spoil(&c)
			wantError(t, c.Validate(), test.parts...)
		})
	}
}

// Values are given in the order of the server: each pair of neighbours makes a chunk.
func TestValidate_BoundsOfAllTypes_InServerOrder(t *testing.T) {
	t.Parallel()
	ordered := []string{`{"$minKey": 1}`, `null`, `{"$numberDouble": "NaN"}`,
		`{"$numberDouble": "-Infinity"}`, `{"$numberLong": "-9223372036854775808"}`, `-1.5`, `-1`,
		`0`, `0.5`, `{"$numberLong": "1"}`, `{"$numberLong": "9007199254740993"}`,
		`{"$numberDouble": "9007199254740994.0"}`, `{"$numberLong": "9223372036854775807"}`,
		`{"$numberDouble": "9223372036854775808.0"}`, `{"$numberDouble": "Infinity"}`, `""`, `"B"`,
		`"a"`, `"aa"`, `{"a": 1}`, `{"a": 1, "b": 0}`, `{"a": 2}`, `{"b": 1}`, `{"a": "x"}`,
		`{"$binary": {"base64": "AQ==", "subType": "00"}}`,
		`{"$binary": {"base64": "AQ==", "subType": "05"}}`,
		`{"$binary": {"base64": "AAA=", "subType": "00"}}`,
		`{"$oid": "000000000000000000000001"}`, `{"$oid": "000000000000000000000100"}`, `false`,
		`true`, `{"$date": {"$numberLong": "-5"}}`, `{"$date": {"$numberLong": "5"}}`,
		`{"$timestamp": {"t": 1, "i": 9}}`, `{"$timestamp": {"t": 2, "i": 1}}`, `{"$maxKey": 1}`}
	var chunks []bson.Raw
	for i, low := range ordered[:len(ordered)-1] {
		chunks = append(chunks, raw(t, fmt.Sprintf(`{"_id": "c%d", "ns": "db.x", "min": {"x": %s}, `+
			`"max": {"x": %s}, "shard": "a", "lastmod": {"$timestamp": {"t": 1, "i": 0}}}`,
			i, low, ordered[i+1])))
	}
	for i, j := 0, len(chunks)-1; i < j; i, j = i+1, j-1 {
		chunks[i], chunks[j] = chunks[j], chunks[i]
	}
	_, err := cluster.Parse(append(chunks, raw(t, `{"_id": "a", "host": "h"}`),
		raw(t, `{"_id": "db.x", "key": {"x": 1}}`)))
	if err != nil {
		t.Error(err)
	}
}

// A server without MinKey and dotted names gets texts, and the parsers read them back the same.
func TestStored_EveryDocumentOfTheSample_ReadsBackTheSame(t *testing.T) {
	t.Parallel()
	c, err := cluster.Sample()
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range c.Chunks {
		doc, err := cluster.Stored(chunk.Raw)
		if err != nil {
			t.Fatal(err)
		}
		stored := marshal(t, doc)
		if _, isText := stored.Lookup("min").StringValueOK(); !isText {
			t.Fatalf("min is no text: %s", stored)
		}
		back, err := cluster.ParseChunk(stored)
		if err != nil {
			t.Fatal(err)
		}
		if string(back.Min) != string(chunk.Min) || string(back.Max) != string(chunk.Max) ||
			back.Name() != chunk.Name() || back.Lastmod != chunk.Lastmod {
			t.Fatalf("want %s, got %s", chunk.Raw, stored)
		}
	}
	doc, err := cluster.Stored(raw(t, `{"_id": "db.x", "key": {"a.b": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.ParseCollection(marshal(t, doc))
	if err != nil || n.Key.Lookup("a.b").Type == 0 {
		t.Errorf("got %s, %v", n.Key, err)
	}
	if _, err := cluster.Stored(bson.Raw{1}); err == nil {
		t.Error("a damaged document was stored")
	}
}
