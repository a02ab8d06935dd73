package transition

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the changes of ping documents. None changes a condemned document.

// Condemn marks a process as dead in its ping document. From then on its pings fail. The document
// must still have the seq of Watched. If Watched is nil, Condemn inserts the document, which must
// still be missing. The inserted document has the field ping, which MongoDB's own lock manager
// requires. Condemn returns ErrNoMatch if the document changed, appeared, is already condemned, or
// is foreign (without seq).
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

// Witness records in a ping document that a contender found no new ping of the process. It replaces
// the record in Watched. The next ping removes the record. Witness returns ErrNoMatch if the
// document no longer has the seq and the record of Watched, is condemned, or is foreign.
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

// watched adds the condition that the document still has the seq of p. It returns ErrNoMatch for a
// foreign document, which has no seq.
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
