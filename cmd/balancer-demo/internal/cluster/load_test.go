package cluster_test

import (
	"reflect"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

const (
	shardLine      = `{"_id":"a","host":"h"}`
	collectionLine = `{"_id":"db.x","key":{"x":1},"uuid":` +
		`{"$uuid":"c8edabc3-f738-4ca3-b68d-ab92a91478a3"}}`
	chunkLine = `{"_id":{"$oid":"5716450a5895fd10a3e9905e"},"uuid":{"$binary":{"base64":` +
		`"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}},"min":{"x":{"$minKey":1}},` +
		`"max":{"x":{"$maxKey":1}},"shard":"a","lastmod":{"$timestamp":{"t":1,"i":0}},` +
		`"jumbo":true,"fence":7}`
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
	} {
		all, err := load(text)
		if err != nil || len(all.Shards) != 1 || len(all.Collections) != 1 || len(all.Chunks) != 1 {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		if c := all.Chunks[0]; c.Name() != `{"$oid":"5716450a5895fd10a3e9905e"}` || c.NS != "db.x" ||
			c.Shard != "a" || !c.Jumbo || c.Fence != 7 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// The error for a bad file names the file, the document and the problem.
func TestLoad_BadText_SaysWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	all := shardLine + "\n" + collectionLine + "\n" + chunkLine + "\n"
	for name, test := range map[string]struct {
		text  string
		parts []string
	}{
		"empty":     {"", []string{"config.shards"}},
		"no chunks": {shardLine + collectionLine, []string{"config.chunks"}},
		"csv":       {"_id,host\na,h\n", []string{"document 1:", "'_'", "mongoexport"}},
		"bad JSON":  {shardLine + `{"_id" "b"}`, []string{"document 2:", "not JSON", "mongoexport"}},
		"bad extended JSON": {shardLine + `{"_id": {"$oid": 5}}`,
			[]string{"document 2:", "extended JSON"}},
		"cut off":        {all + `{"_id": "b", "ho`, []string{"document 4:", "cut off"}},
		"array in array": {"[[" + shardLine + "]]", []string{"document 1:"}},
		"no document":    {"[" + shardLine + ",5]", []string{"document 2:"}},
		"unknown shape": {all + `{"_id":"chunksize","value":64}`,
			[]string{"document 4:", "chunksize", "remove"}},
		"shard with _id 5":      {`{"_id": 5, "host": "h"}`, []string{"_id"}},
		"shard with draining":   {`{"_id":"b","host":"h","draining":"no"}`, []string{`"b"`, "draining"}},
		"collection, noBalance": {`{"_id":"c","key":{},"noBalance":[]}`, []string{`"c"`, "noBalance"}},
		"chunk with fence":      {strings.Replace(all, "7}", "7.5}", 1), []string{"fence"}},
		"unknown uuid":          {strings.Replace(all, "yO2r", "yO2s", 1), []string{"5716450a", "uuid"}},
		"unknown shard":         {strings.Replace(all, `:"a"`, `:"b"`, 1), []string{"5716450a", "shard"}},
		"no _id":                {`{"host":"h"}`, []string{"_id", "is not from config.shards"}},
	} {
		_, err := load(test.text)
		for _, part := range append(test.parts, "load a.json") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", name, err, part)
			}
		}
	}
}

// FuzzLoad: Load does not panic for any input. Candidates does not panic for a cluster that Load
// returned.
func FuzzLoad(f *testing.F) {
	f.Add(shardLine + "\n" + collectionLine + "\n" + chunkLine)
	f.Add("[" + shardLine + "," + collectionLine + "]")
	f.Add(`{"a":{"$numberDecimal":"1E6000"},"b":{"$code":"x","$scope":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(text)
		if err == nil {
			cluster.Candidates(c)
		}
	})
}

// A cluster does not change when it is encoded to BSON and decoded again.
func TestSample_ReadsBackTheSame(t *testing.T) {
	t.Parallel()
	want := assert.Value(cluster.Sample())(t)
	raw := assert.Value(bson.Marshal(want))(t)
	var got cluster.Cluster
	if err := bson.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("want\n%+v\ngot\n%+v, %v", want, got, err)
	}
}
