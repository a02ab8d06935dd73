package cluster_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

// wantDocument compares a document with relaxed extended JSON. The order of fields does not matter.
func wantDocument(t *testing.T, doc any, want string) {
	t.Helper()
	var got, wanted any
	text, err := bson.MarshalExtJSON(doc, false, false)
	assert.Must(t, errors.Join(err, json.Unmarshal(text, &got),
		json.Unmarshal([]byte(want), &wanted)))
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("want %s\n got %s", want, text)
	}
}

// The records have the fields that package referee and the readers of config.changelog expect.
func TestRecords_AsInTheDatabase(t *testing.T) {
	t.Parallel()
	round := cluster.NewRound("p", 42, bson.Timestamp{T: 5, I: 1})
	chunk := assert.Value(load(shardLine + collectionLine + chunkLine))(t).Chunks[0]
	m := cluster.Migration{Chunk: chunk, From: "a", To: "b"}
	c := m.Changed(round, bson.Timestamp{T: 5, I: 6}, "host", 4711,
		time.Date(2016, 4, 12, 9, 8, 7, 654e6, time.UTC))
	const head = "host-2016-04-12T09:08:07.654+0000-"
	if !strings.HasPrefix(c.ID, head) || len(c.ID) != len(head)+24 {
		t.Errorf("_id %q, want %q and a serial", c.ID, head)
	}
	c.ID = "x"
	wantDocument(t, c, `{"_id":"x","server":"host:4711","clientAddr":"host:4711",`+
		`"time":{"$date":"2016-04-12T09:08:07.654Z"},"what":"moveChunk.commit","ns":"db.x","details":{`+
		`"min":"{\"x\": {\"$minKey\":1}}","max":"{\"x\": {\"$maxKey\":1}}","from":"a","to":"b",`+
		`"chunk":"{\"$oid\":\"5716450a5895fd10a3e9905e\"}","process":"p","fence":42,`+
		`"movedAt":{"$timestamp":{"t":5,"i":6}}}}`)
	round.Outcome, round.Left, round.Moves = cluster.Done, bson.Timestamp{T: 5, I: 9}, 3
	wantDocument(t, round, `{"_id":"p/42","process":"p","fence":42,"moves":3,`+
		`"entered":{"$timestamp":{"t":5,"i":1}},"left":{"$timestamp":{"t":5,"i":9}},"outcome":"done"}`)
}
