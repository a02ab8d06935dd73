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

func migration(t *testing.T) cluster.Migration {
	t.Helper()
	all := assert.Value(load(others + goodChunk))(t)
	return cluster.Migration{Chunk: all.Chunks[0], From: "a", To: "b"}
}

// wantDocument compares a document with one in relaxed extended JSON, ignoring the order of fields.
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

func TestMigration_FilterAndUpdate_AsInTheDatabase(t *testing.T) {
	t.Parallel()
	m := migration(t)
	wantDocument(t, m.Filter(42), `{"_id":"c1","shard":"a",`+
		`"$or":[{"fence":{"$exists":false}},{"fence":{"$lte":42}}]}`)
	wantDocument(t, m.Update(42, bson.Timestamp{T: 9}), `{"$set":{"shard":"b","fence":42,`+
		`"lastmod":{"$timestamp":{"t":9,"i":0}}},"$currentDate":{"movedAt":{"$type":"timestamp"}}}`)
	wantDocument(t, cluster.Tick(), `{"$currentDate":{"at":{"$type":"timestamp"}}}`)
}

func TestCluster_NextVersion_IsAboveAllOfTheCollection(t *testing.T) {
	t.Parallel()
	c := metadata(t, map[string]string{"a": ""}, layout{"db.x", "", []onShard{{"a", 5, false}}},
		layout{"db.y", "", []onShard{{"a", 9, false}}})
	if got, want := c.NextVersion("db.x"), (bson.Timestamp{T: 6}); got != want {
		t.Errorf("want %v, got %v", want, got)
	}
}

func TestMigration_Changed_HasTheShapeOfMongos(t *testing.T) {
	t.Parallel()
	now := time.Date(2016, 4, 12, 9, 8, 7, 654e6, time.UTC)
	c := migration(t).Changed("p", 42, bson.Timestamp{T: 5, I: 6}, "host", 4711, now)
	const head = "host-2016-04-12T09:08:07.654+0000-"
	if !strings.HasPrefix(c.ID, head) || len(c.ID) != len(head)+24 {
		t.Errorf("_id %q, want %q and a serial", c.ID, head)
	}
	c.ID = "x"
	wantDocument(t, c, `{"_id":"x","server":"host:4711","clientAddr":"host:4711",`+
		`"time":{"$date":"2016-04-12T09:08:07.654Z"},"what":"moveChunk.commit","ns":"db.x","details":{`+
		`"min":"{\"x\": {\"$minKey\":1}}","max":"{\"x\": {\"$maxKey\":1}}","from":"a","to":"b",`+
		`"chunk":"c1","process":"p","fence":42,"movedAt":{"$timestamp":{"t":5,"i":6}}}}`)
	var back cluster.Change
	assert.Must(t, bson.Unmarshal(marshal(t, c), &back))
	if back.Time = back.Time.UTC(); back != c {
		t.Errorf("want %+v, got %+v", c, back)
	}
}

// The judge relies on the record of a round, so Validate refuses an impossible record.
func TestRound_Validate_NamesTheField(t *testing.T) {
	t.Parallel()
	good := cluster.NewRound("p", 42, bson.Timestamp{T: 5, I: 1})
	if good.ID != "p/42" || good.Validate() != nil {
		t.Errorf("%+v: %v", good, good.Validate())
	}
	good.Outcome, good.Left, good.Moves = cluster.Done, bson.Timestamp{T: 5, I: 9}, 3
	wantDocument(t, good, `{"_id":"p/42","process":"p","fence":42,"moves":3,`+
		`"entered":{"$timestamp":{"t":5,"i":1}},"left":{"$timestamp":{"t":5,"i":9}},"outcome":"done"}`)
	var back cluster.Round
	if err := bson.Unmarshal(marshal(t, good), &back); err != nil || back != good ||
		good.Validate() != nil {
		t.Errorf("want %+v, got %+v, %v, %v", good, back, err, good.Validate())
	}
	for field, spoil := range map[string]func(*cluster.Round){
		"process": func(r *cluster.Round) { r.Process = "" },
		"entered": func(r *cluster.Round) { r.Entered = bson.Timestamp{} },
		"left":    func(r *cluster.Round) { r.Left = bson.Timestamp{} },
		"outcome": func(r *cluster.Round) { r.Outcome = "so so" },
	} {
		r := good
		spoil(&r)
		wantError(t, r.Validate(), "rounds", `"p/42"`, `"`+field+`"`)
	}
}
