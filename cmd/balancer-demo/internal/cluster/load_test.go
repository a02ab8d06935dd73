package cluster_test

import (
	"strings"
	"testing"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

const (
	shardLine      = `{"_id":"a","host":"h"}`
	collectionLine = `{"_id":"db.x","key":{"x":1},"uuid":` +
		`{"$uuid":"c8edabc3-f738-4ca3-b68d-ab92a91478a3"}}`
	chunkLine = `{"_id":{"$oid":"5716450a5895fd10a3e9905e"},"uuid":{"$binary":{"base64":` +
		`"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}},"min":{"x":{"$minKey":1}},` +
		`"max":{"x":{"$maxKey":1}},"shard":"a","lastmod":{"$timestamp":{"t":1,"i":0}}}`
)

func load(text string) (cluster.Cluster, error) {
	return cluster.Load("a.json", strings.NewReader(text))
}

func TestLoad_EveryLayoutOfMongoexport(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lines":           shardLine + "\n" + collectionLine + "\n" + chunkLine + "\n",
		"chunks first":    chunkLine + "\n" + collectionLine + "\n" + shardLine,
		"one array":       "[" + shardLine + ",\n" + collectionLine + "\n,\r\n" + chunkLine + "\n]",
		"arrays":          "[" + shardLine + "] [" + collectionLine + "] []\n" + chunkLine,
		"over many lines": strings.ReplaceAll(shardLine+collectionLine+chunkLine, ",", ",\n\t"),
		"with a mark":     "\ufeff" + shardLine + collectionLine + chunkLine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := assert.Value(load(text))(t)
			if len(c.Shards) != 1 || len(c.Collections) != 1 || len(c.Chunks) != 1 {
				t.Fatalf("got %+v", c)
			}
			assert.Equal(t, c.Chunks[0].NS, "db.x", "the uuid was mapped to %q, want %v")
		})
	}
}

func TestLoad_BadText_SaysWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	all := shardLine + "\n" + collectionLine + "\n" + chunkLine + "\n"
	for name, test := range map[string]struct {
		text  string
		parts []string
	}{
		"empty":     {"", []string{"a.json", "config.shards", "mongoexport"}},
		"no chunks": {shardLine + collectionLine, []string{"config.chunks", "-c chunks"}},
		"csv":       {"_id,host\na,h\n", []string{"a.json:1:", "'_'", "mongoexport"}},
		"bad JSON": {shardLine + "\n{\"_id\" \"b\"}\n",
			[]string{"a.json:2:", "not documents", "again"}},
		"bad extended JSON": {shardLine + "\n{\"_id\": {\"$oid\": 5}}",
			[]string{"a.json:2:", "extended JSON", "again"}},
		"cut off":    {all + `{"_id": "b", "ho`, []string{"a.json:4:", "cut off"}},
		"open text":  {all + `{"_id": "b` + "\n\"}", []string{"a.json:4:", "not documents"}},
		"open array": {"[" + shardLine + "\n", []string{"a.json:1:", "cut off"}},
		"no comma": {"[" + shardLine + "\n" + collectionLine + "]",
			[]string{"a.json:1:", "after array element", "again"}},
		"comma too much": {"[" + shardLine + ",]", []string{"a.json:1:", "']'"}},
		"comma at first": {"[," + shardLine + "]", []string{"a.json:1:", "','"}},
		"array in array": {"[[" + shardLine + "]]", []string{"a.json:1:", "mongoexport"}},
		"brace too much": {shardLine + "}\n", []string{"a.json:1:", "'}'"}},
		"no document":    {shardLine + "5", []string{"a.json:1:", "mongoexport"}},
		"UTF-16":         {"\xff\xfe{\x00", []string{"a.json:1:", "mongoexport"}},
		"half a mark":    {"\xef\xbb" + all, []string{"a.json:1:", "mongoexport"}},
		"unknown shape": {all + `{"_id":"chunksize","value":64}`,
			[]string{"a.json:4:", "chunksize", "remove"}},
		"bad field": {shardLine + "\n\n" + `{"_id":"b","host":5}`,
			[]string{"a.json:3:", "shards", `"b"`, `"host"`}},
		"unknown uuid": {shardLine + `{"_id":"db.x","key":{"x":1}}` + chunkLine,
			[]string{"chunks", "5716450a", `"uuid"`}},
		"the whole wrong": {
			shardLine + collectionLine + strings.Replace(chunkLine, "maxKey", "minKey", 1),
			[]string{"a.json", "chunks", `"max"`, "gap"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(test.text)
			wantError(t, err, append(test.parts, "load a.json")...)
		})
	}
}

func TestLoad_MalformedDocument_CanBeTold(t *testing.T) {
	t.Parallel()
	assert.Is(t, assert.Err(load(`{"_id":"b","host":5}`)), catalog.ErrMalformed)
}

// Load never panics, and accepts only valid clusters that can be balanced.
func FuzzLoad(f *testing.F) {
	f.Add(shardLine + "\n" + collectionLine + "\n" + chunkLine)
	f.Add("[" + shardLine + "," + collectionLine + "]")
	f.Add(`{"a":{"$numberDecimal":"1E6000"},"b":{"$code":"x","$scope":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(text)
		if err != nil {
			return
		}
		if c, err = cluster.Assemble(c); err != nil {
			t.Error(err)
		}
		cluster.Candidates(c)
	})
}
