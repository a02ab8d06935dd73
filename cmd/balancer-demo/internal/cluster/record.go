package cluster

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Done is the Outcome of a completed round. The process held the lock from Entered to Left.
const Done = "done"

// A Round is the record of one round of a balancer. Entered and Left are Timestamps of the server.
//
// Package referee assumes that the process held the lock at both times. A process therefore gets a
// Timestamp first, and then checks that it still holds the lock. In the reverse order, the process
// could lose the lock between the check and the Timestamp, and package referee would report a false
// violation.
type Round struct {
	ID      string         `bson:"_id"` // see NewRound
	Process string         `bson:"process"`
	Fence   int64          `bson:"fence"`
	Entered bson.Timestamp `bson:"entered"`
	Left    bson.Timestamp `bson:"left"`    // zero unless the outcome is Done
	Outcome string         `bson:"outcome"` // Done, or empty: the process died, lost its lock or works
	Moves   int64          `bson:"moves"`
}

// NewRound returns a round that starts at the given time of the server's clock. Its ID is unique,
// because a process runs one round per fence.
func NewRound(process string, fence int64, at bson.Timestamp) Round {
	return Round{ID: fmt.Sprintf("%s/%d", process, fence), Process: process, Fence: fence, Entered: at}
}

// Moved is the value of the field "what" in the changelog entry of a completed move.
const Moved = "moveChunk.commit"

// A Change is an entry of the changelog for one move of a chunk. It has the same fields as a
// changelog entry of mongos.
type Change struct {
	ID         string    `bson:"_id"`        // "<host>-<time>-<serial>"
	Server     string    `bson:"server"`     // "<host>:<pid>" of the writer, which has no address
	ClientAddr string    `bson:"clientAddr"` // the same as Server
	Time       time.Time `bson:"time"`       // the writer's clock, informational
	What       string    `bson:"what"`
	NS         string    `bson:"ns"`
	Details    `bson:"details"`
}

// Details describes a move. The entries of mongos do not have the fields Chunk, Process, Fence and
// MovedAt.
type Details struct {
	Min     Text           `bson:"min"`
	Max     Text           `bson:"max"`
	From    string         `bson:"from"`
	To      string         `bson:"to"`
	Chunk   string         `bson:"chunk"` // the chunk's Name
	Process string         `bson:"process"`
	Fence   int64          `bson:"fence"`
	MovedAt bson.Timestamp `bson:"movedAt"` // the server's stamp in the chunk
}

// Changed returns the changelog entry for the move m in round r. The parameter at is the server's
// Timestamp of the move, and now is the local time.
func (m Migration) Changed(r Round, at bson.Timestamp, host string, pid int, now time.Time) Change {
	server := fmt.Sprintf("%s:%d", host, pid)
	return Change{
		ID: fmt.Sprintf("%s-%s-%s", host, now.UTC().Format("2006-01-02T15:04:05.000-0700"),
			bson.NewObjectID().Hex()),
		Server: server, ClientAddr: server, Time: now, What: Moved, NS: m.Chunk.NS,
		Details: Details{Min: m.Chunk.Min, Max: m.Chunk.Max, From: m.From, To: m.To,
			Chunk: m.Chunk.Name(), Process: r.Process, Fence: r.Fence, MovedAt: at},
	}
}
