package cluster_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
)

func migration(t *testing.T) cluster.Migration {
	t.Helper()
	c, err := cluster.ParseChunk(raw(t, goodChunk))
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Migration{Chunk: c, From: "a", To: "b"}
}

func wantDocument(t *testing.T, doc bson.D, want string) {
	t.Helper()
	got, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("want %s\n got %s", want, got)
	}
}

func TestMigration_FilterAndUpdate_AsInTheDatabase(t *testing.T) {
	t.Parallel()
	m := migration(t)
	wantDocument(t, m.Filter(42), `{"_id":"c1","shard":"a",`+
		`"$or":[{"fence":{"$exists":false}},{"fence":{"$lte":42}}]}`)
	wantDocument(t, m.Update(42, bson.Timestamp{T: 9}), `{"$set":{"shard":"b","fence":42,`+
		`"lastmod":{"$timestamp":{"t":9,"i":0}}},"$currentDate":{"movedAt":{"$type":"timestamp"}}}`)
}

func TestCluster_NextVersion_IsAboveAllOfTheCollection(t *testing.T) {
	t.Parallel()
	c := metadata(t, map[string]string{"a": ""}, layout{"db.x", "", []onShard{{"a", 5, false}}},
		layout{"db.y", "", []onShard{{"a", 9, false}}})
	if got, want := c.NextVersion("db.x"), (bson.Timestamp{T: 6}); got != want {
		t.Errorf("want %v, got %v", want, got)
	}
}

func change(t *testing.T) cluster.Change {
	t.Helper()
	return cluster.Change{
		Host: "host", Server: "host:4711",
		Time:   time.Date(2016, 4, 12, 9, 8, 7, 654e6, time.UTC),
		Serial: bson.ObjectID{1, 2}, NS: "db.x", Chunk: "c1",
		Min: raw(t, `{"x": {"$minKey": 1}}`), Max: raw(t, `{"x": 2}`), From: "a", To: "b",
		Process: "p", Fence: 42, MovedAt: bson.Timestamp{T: 5, I: 6},
	}
}

func TestChange_Document_HasTheShapeOfMongos(t *testing.T) {
	t.Parallel()
	const head = `{"_id":"host-2016-04-12T09:08:07.654+0000-010200000000000000000000",` +
		`"server":"host:4711","clientAddr":"host:4711",` +
		`"time":{"$date":"2016-04-12T09:08:07.654Z"},"what":"moveChunk.commit","ns":"db.x","details":{`
	const tail = `"from":"a","to":"b","chunk":"c1","process":"p","fence":42,` +
		`"movedAt":{"$timestamp":{"t":5,"i":6}}}}`
	wantDocument(t, change(t).Document(false),
		head+`"min":{"x":{"$minKey":1}},"max":{"x":2},`+tail)
	wantDocument(t, change(t).Document(true), head+
		`"min":"{\"x\": {\"$minKey\":1}}","max":"{\"x\": {\"$numberInt\":\"2\"}}",`+tail)
}

func TestParseChange_BothForms_ReadBackTheSame(t *testing.T) {
	t.Parallel()
	for _, texts := range []bool{false, true} {
		want := change(t)
		got, ours, err := cluster.ParseChange(marshal(t, want.Document(texts)))
		if err != nil || !ours {
			t.Fatalf("ours %t, %v", ours, err)
		}
		if got.NS != want.NS || got.Chunk != want.Chunk || got.Fence != want.Fence ||
			got.MovedAt != want.MovedAt || got.Process != want.Process || got.From != want.From ||
			got.To != want.To {
			t.Errorf("want %+v, got %+v", want, got)
		}
	}
}

func TestParseChange_EntriesOfOthers_AreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"_id": "1", "what": "split", "ns": 5}`, `{"_id": "1"}`,
		`{"_id": "1", "what": "moveChunk.commit", "details": {"from": "a"}}`} {
		if _, ours, err := cluster.ParseChange(raw(t, text)); ours || err != nil {
			t.Errorf("%s: ours %t, %v", text, ours, err)
		}
	}
	_, _, err := cluster.ParseChange(raw(t, `{"_id": "1", "what": "moveChunk.commit", "ns": "n",
		"details": {"min": {"x": 1}, "max": {"x": 2}, "from": "a", "to": 5, "fence": 3}}`))
	wantError(t, err, "changelog", `"1"`, `"details.to"`)
}

func TestRound_Document_ReadsBackTheSame(t *testing.T) {
	t.Parallel()
	want := cluster.Round{Process: "p", Fence: 42, Entered: bson.Timestamp{T: 5, I: 1},
		Left: bson.Timestamp{T: 5, I: 9}, Outcome: cluster.Done, Moves: 3}
	got, err := cluster.ParseRound(marshal(t, want.Document()))
	if err != nil || got != want {
		t.Errorf("want %+v, got %+v, %v", want, got, err)
	}
	wantDocument(t, want.Finish(), `{"$set":{"left":{"$timestamp":{"t":5,"i":9}},`+
		`"outcome":"done","moves":3}}`)
	wantDocument(t, cluster.Tick(), `{"$currentDate":{"at":{"$type":"timestamp"}}}`)
	if want.ID() != "p/42" {
		t.Errorf("got id %q", want.ID())
	}
}

func TestParseRound_BadFields_AreNamed(t *testing.T) {
	t.Parallel()
	const entered = `"entered": {"$timestamp": {"t": 5, "i": 1}}`
	for text, field := range map[string]string{
		`"fence": 1, ` + entered:                                             "process",
		`"process": "p", "fence": "1", ` + entered:                           "fence",
		`"process": "p", "fence": 1`:                                         "entered",
		`"process": "p", "fence": 1, "left": 5, ` + entered:                  "left",
		`"process": "p", "fence": 1, "outcome": "done", ` + entered:          "left",
		`"process": "p", "fence": 1, "outcome": "so so", ` + entered:         "outcome",
		`"process": "p", "fence": 1, "moves": {}, "outcome": "", ` + entered: "moves",
	} {
		_, err := cluster.ParseRound(raw(t, `{"_id": "r", `+text+`}`))
		wantError(t, err, "rounds", `"r"`, `"`+field+`"`)
	}
}
