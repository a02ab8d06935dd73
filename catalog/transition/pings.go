package transition

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the changes of ping documents. A condemned one is changed by none of them.

// Condemn marks the ping document of a process as dead, if it still is as watched: with that seq,
// or, when nothing was watched, not there. After it the process cannot renew. A document that is
// made by it has a ping, without which MongoDB's own lock manager cannot read it. Errors:
// ErrNoMatch when the document changed, appeared, or is condemned already, or is a foreign one,
// without seq.
type Condemn struct {
	Process string
	Watched *catalog.Ping
	How     catalog.Condemnation
}

// On implements [catalog.PingChange].
func (c Condemn) On() string { return c.Process }

// Update implements [catalog.PingChange].
func (c Condemn) Update() (catalog.PingUpdate, error) {
	u := catalog.PingUpdate{
		Set: bson.D{
			{Key: "condemned.by", Value: c.How.By}, {Key: "condemned.evidence", Value: c.How.Evidence},
		},
		Dates: []string{"condemned.at"},
	}
	if c.Watched != nil {
		err := watched(&u, *c.Watched)
		return u, err
	}
	u.Absent, u.Dates, u.Makes = []string{"seq", "ping"}, append(u.Dates, "ping"), true
	return u, nil
}

// Witness leaves in the ping document of a silent process what a contender saw of it, in place of
// what Watched shows of that, if its seq still is as watched. The next ping takes it away. Errors:
// ErrNoMatch when the process has pinged, is condemned or foreign, or somebody else has left what
// it saw.
type Witness struct {
	Watched catalog.Ping
	Sight   catalog.Sight
}

// On implements [catalog.PingChange].
func (c Witness) On() string { return c.Watched.Process }

// Update implements [catalog.PingChange].
func (c Witness) Update() (catalog.PingUpdate, error) {
	s := c.Sight
	u := catalog.PingUpdate{Set: bson.D{{Key: "sight", Value: bson.D{
		{Key: "seq", Value: s.Seq}, {Key: "at", Value: bson.NewDateTimeFromTime(s.At)},
		{Key: "local", Value: bson.NewDateTimeFromTime(s.Local)}, {Key: "by", Value: s.By},
	}}}}
	err := watched(&u, c.Watched)
	if before := c.Watched.Sight; before.By == "" {
		u.Absent = []string{"sight.at"}
	} else {
		u.Equal = append(u.Equal, bson.E{Key: "sight.at", Value: bson.NewDateTimeFromTime(before.At)})
	}
	return u, err
}

// watched demands that the document has the seq that was watched. A foreign one has none.
func watched(u *catalog.PingUpdate, p catalog.Ping) error {
	if !p.HasSeq {
		return catalog.ErrNoMatch
	}
	u.Equal = bson.D{{Key: "seq", Value: p.Seq}}
	return nil
}

// RemovePing deletes the ping document of a process that ends in an orderly way. It is no error
// when there is none. A condemned document stays.
type RemovePing struct{ Process string }

// On implements [catalog.PingChange].
func (c RemovePing) On() string { return c.Process }

// Update implements [catalog.PingChange].
func (c RemovePing) Update() (catalog.PingUpdate, error) {
	return catalog.PingUpdate{Removes: true}, nil
}
