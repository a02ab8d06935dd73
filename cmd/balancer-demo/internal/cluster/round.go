package cluster

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Outcome says how a round ended.
type Outcome string

// The outcomes of a round.
const (
	// Unfinished is the outcome of a round whose process died in it, or is still at it.
	Unfinished Outcome = ""
	// Done means that the lock was held, and known to be held, from Entered to Left.
	Done Outcome = "done"
	// Lost means that the process found out during the round that it had lost the lock.
	Lost Outcome = "lost"
)

// A Round is what a balancer records of one round, in a collection of its own next to the others.
// Both stamps come from the server: the answer to an update of the document TickID with Tick.
//
// The judge takes the stamps for instants at which the guard was good. So the order is: ask for
// the stamp, then check the guard, then record. A process that is paused between stamp and check
// finds its lock lost and records nothing (Entered) or Lost (Left); the other way round a stamp
// could come long after the check, and the judge would accuse the innocent.
type Round struct {
	Process string
	Fence   int64
	Entered bson.Timestamp
	Left    bson.Timestamp // zero unless the outcome is Done
	Outcome Outcome
	Moves   int64
}

// TickID is the _id of the document that Tick updates, in RoundsCollection.
const TickID = "tick"

// Tick is the update that makes the server write a new Timestamp, larger than all before it, into
// the field at. On MongoDB these rise with every write of the whole server; on the embedded
// config server they rise as long as it is not restarted within one second.
func Tick() bson.D { return bson.D{{Key: "$currentDate", Value: stampOf("at")}} }

// ID is the _id of the round's document: a process never has two rounds with one fence.
func (r Round) ID() string { return fmt.Sprintf("%s/%d", r.Process, r.Fence) }

// Document is the record of a round that has begun.
func (r Round) Document() bson.D {
	return bson.D{
		{Key: "_id", Value: r.ID()},
		{Key: "process", Value: r.Process},
		{Key: "fence", Value: r.Fence},
		{Key: "entered", Value: r.Entered},
		{Key: "left", Value: r.Left},
		{Key: "outcome", Value: string(r.Outcome)},
		{Key: "moves", Value: r.Moves},
	}
}

// Finish is the update of the record at the end of the round.
func (r Round) Finish() bson.D {
	return bson.D{{Key: "$set", Value: bson.D{
		{Key: "left", Value: r.Left},
		{Key: "outcome", Value: string(r.Outcome)},
		{Key: "moves", Value: r.Moves},
	}}}
}

// ParseRound understands the record of a round. Error: *catalog.MalformedError.
func ParseRound(raw bson.Raw) (Round, error) {
	d := open(RoundsCollection, raw)
	r := Round{
		Process: d.text("process"),
		Fence:   d.whole("fence"),
		Entered: d.stamp("entered", true),
		Left:    d.stamp("left", false),
		Outcome: Outcome(d.optionalText("outcome")),
		Moves:   d.whole("moves"),
	}
	switch r.Outcome {
	case Unfinished, Lost:
	case Done:
		if r.Left.Before(r.Entered) {
			d.fail("left", "lies before entered")
		}
	default:
		d.fail("outcome", "is %s; it must be done, lost or empty", quoted(string(r.Outcome)))
	}
	return r, d.err()
}
