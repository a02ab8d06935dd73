package cluster

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Outcome is the result of a round.
type Outcome string

// The outcomes of a round.
const (
	Unfinished Outcome = ""     // its process died in it, or is still working
	Done       Outcome = "done" // the lock was held, and known to be held, from Entered to Left
	Lost       Outcome = "lost" // the process noticed during the round that it had lost the lock
)

// A Round is the record of one round of a balancer, in a separate collection. Both stamps come from
// the server, which writes them when Tick updates the document TickID.
//
// The judge treats a stamp as an instant at which the guard was valid. So a process gets the stamp,
// then checks the guard, and then records the round. If it loses its lock in a pause between stamp
// and check, the check fails. Then it records nothing (for Entered), or the outcome Lost (for
// Left). In the other order a stamp could come long after the check, and the judge would report a
// false violation.
type Round struct {
	ID      string         `bson:"_id"` // see NewRound
	Process string         `bson:"process"`
	Fence   int64          `bson:"fence"`
	Entered bson.Timestamp `bson:"entered"`
	Left    bson.Timestamp `bson:"left"` // zero unless the outcome is Done
	Outcome Outcome        `bson:"outcome"`
	Moves   int64          `bson:"moves"`
}

// NewRound returns a new round. Its ID is unique, because a process has one round per fence.
func NewRound(process string, fence int64, at bson.Timestamp) Round {
	return Round{ID: fmt.Sprintf("%s/%d", process, fence), Process: process, Fence: fence, Entered: at}
}

// Validate returns an error for a record that is unfit for the judge.
func (r Round) Validate() error {
	switch {
	case r.Process == "":
		return malformed(RoundsCollection, r.ID, "process", "is missing")
	case r.Entered.IsZero():
		return malformed(RoundsCollection, r.ID, "entered", "is missing")
	case r.Outcome == Done && r.Left.Before(r.Entered):
		return malformed(RoundsCollection, r.ID, "left", "lies before entered")
	case r.Outcome != Done && r.Outcome != Lost && r.Outcome != Unfinished:
		return malformed(RoundsCollection, r.ID, "outcome", "is %q; it must be done, lost or empty",
			r.Outcome)
	}
	return nil
}

// TickID is the _id of the document in RoundsCollection that Tick updates.
const TickID = "tick"

// Tick returns the update that makes the server write a new Timestamp into the field "at". The
// Timestamp is larger than all earlier ones. MongoDB raises it with every write to the server. The
// embedded config server raises it unless the server restarts within one second.
func Tick() bson.M { return bson.M{"$currentDate": stampOf("at")} }
