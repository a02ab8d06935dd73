package transition

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// The changes in this file do not match the document of a condemned process.

// Condemn marks a process as dead in its ping document. All later pings of the process fail. The
// document must still have the seq of Watched. If Watched is nil, the document must be missing, and
// Condemn inserts it. The inserted document has the field ping, because MongoDB's own lock manager
// requires that field. Condemn returns ErrNoMatch if the document does not meet these conditions,
// is already condemned, or is foreign (without seq).
type Condemn struct {
	Process string
	Watched *catalog.Ping
	How     catalog.Condemnation
}

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

// Witness writes an observation into a ping document: a contender found no new ping of the process.
// It replaces an earlier observation. The next ping removes it. If the document has another seq or
// observation than Watched, Witness returns ErrNoMatch. It also returns ErrNoMatch for a condemned
// or foreign document.
type Witness struct {
	Watched catalog.Ping
	Sight   catalog.Sight
}

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

// watched requires that the document still has the seq of p. A foreign document has no seq, so
// watched returns ErrNoMatch.
func watched(u *catalog.PingUpdate, p catalog.Ping) error {
	if !p.HasSeq {
		return catalog.ErrNoMatch
	}
	u.Equal = bson.D{{Key: "seq", Value: p.Seq}}
	return nil
}

// RemovePing deletes the ping document of a process that shuts down. A missing document is not an
// error. A condemned document is not deleted.
type RemovePing struct{ Process string }

func (c RemovePing) Update() (catalog.PingUpdate, error) {
	return catalog.PingUpdate{Removes: true}, nil
}
