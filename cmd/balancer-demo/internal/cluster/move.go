package cluster

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Moved is what the changelog says of a chunk that has reached its new shard.
const Moved = "moveChunk.commit"

// Filter selects the chunk in config.chunks as long as it is on the shard it has to leave and no
// holder with a higher fence has moved it. A filter that matches nothing is the sign of a stale
// holder.
func (m Migration) Filter(fence int64) bson.D {
	return bson.D{
		{Key: "_id", Value: m.Chunk.ID},
		{Key: "shard", Value: m.From},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "fence", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "fence", Value: bson.D{{Key: "$lte", Value: fence}}}},
		}},
	}
}

// Update moves the chunk: its new shard, the mover's fence, the next version (NextVersion), and
// movedAt, a Timestamp that the server writes in the same step. Read the document back with the
// update (findOneAndUpdate, after): movedAt belongs into the changelog.
func (m Migration) Update(fence int64, version bson.Timestamp) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "shard", Value: m.To},
			{Key: "fence", Value: fence},
			{Key: "lastmod", Value: version},
		}},
		{Key: "$currentDate", Value: stampOf("movedAt")},
	}
}

// NextVersion is the version that the next move in a collection writes: one migration more than
// the highest of all its chunks, and no split. mongos also raised a chunk that stayed on the
// giving shard; nothing routes by these versions here, so that is left out.
func (c Cluster) NextVersion(ns string) bson.Timestamp {
	var highest uint32
	for _, chunk := range c.Chunks {
		if chunk.NS == ns {
			highest = max(highest, chunk.Lastmod.T)
		}
	}
	return bson.Timestamp{T: highest + 1}
}

// A Change is an entry of config.changelog about a move.
type Change struct {
	Host     string        // of the machine, the first part of the _id
	Server   string        // "<host>:<pid>" of the process that writes, which has no address
	Time     time.Time     // the writer's clock, informational
	Serial   bson.ObjectID // the last part of the _id; new for every entry
	NS       string
	Chunk    string // Chunk.Name of the chunk, ours
	Min, Max bson.Raw
	From, To string
	Process  string         // ours
	Fence    int64          // ours
	MovedAt  bson.Timestamp // the server's stamp in the chunk, ours
}

// Document is the entry in the shape mongos gave it: _id "<host>-<time>-<serial>", server,
// clientAddr, time, what, ns, and details with min, max, from and to. Ours in the details are
// chunk, process, fence and movedAt. For a server without MinKey, texts puts texts in the place of
// min and max, see Stored.
func (c Change) Document(texts bool) bson.D {
	var low, high any = c.Min, c.Max
	if texts {
		low, high = c.Min.String(), c.Max.String()
	}
	at := c.Time.UTC().Format("2006-01-02T15:04:05.000-0700")
	return bson.D{
		{Key: "_id", Value: fmt.Sprintf("%s-%s-%s", c.Host, at, c.Serial.Hex())},
		{Key: "server", Value: c.Server},
		{Key: "clientAddr", Value: c.Server},
		{Key: "time", Value: bson.NewDateTimeFromTime(c.Time)},
		{Key: "what", Value: Moved},
		{Key: "ns", Value: c.NS},
		{Key: "details", Value: bson.D{
			{Key: "min", Value: low},
			{Key: "max", Value: high},
			{Key: "from", Value: c.From},
			{Key: "to", Value: c.To},
			{Key: "chunk", Value: c.Chunk},
			{Key: "process", Value: c.Process},
			{Key: "fence", Value: c.Fence},
			{Key: "movedAt", Value: c.MovedAt},
		}},
	}
}

// ParseChange understands of an entry that Document made what the referee wants to know. ours is
// false, and nothing is checked, for an entry of another kind or another writer. Error:
// *catalog.MalformedError.
func ParseChange(raw bson.Raw) (c Change, ours bool, err error) {
	d := open(ChangelogCollection, raw)
	if what, _ := d.fields["what"].StringValueOK(); what != Moved {
		return Change{}, false, nil
	}
	details, ok := d.fields["details"].DocumentOK()
	if !ok || details.Lookup("fence").Type == 0 {
		return Change{}, false, nil
	}
	c.NS = d.text("ns")
	in := d.within("details", details)
	c.From, c.To = in.text("from"), in.text("to")
	c.Chunk, c.Process = in.text("chunk"), in.text("process")
	c.Fence, c.MovedAt = in.whole("fence"), in.stamp("movedAt", true)
	if d.bad == nil {
		d.bad = in.bad
	}
	return c, true, d.err()
}

func stampOf(field string) bson.D {
	return bson.D{{Key: field, Value: bson.D{{Key: "$type", Value: "timestamp"}}}}
}
