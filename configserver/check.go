package configserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const (
	maxContenders = 256
	maxRounds     = 10_000
	// commandTimeout bounds each command of a contender. The end of the caller's context does not stop
	// the command.
	commandTimeout = 10 * time.Second
	dropTimeout    = 10 * time.Second
)

// CheckOptions are the settings of [Check]. The zero value means 50 rounds of 16 contenders in the
// database named config.
type CheckOptions struct {
	// Database is the name of the database for the scratch collection; default "config". Use the
	// database of the locks, because a config server refuses to create other databases.
	Database string
	// Contenders is the number of concurrent contenders; 2 to 256, default 16. If the client's pool
	// allows fewer connections, fewer contenders race.
	Contenders int
	// Rounds is the number of rounds of each of the two races, acquire and compare-and-set; 1 to
	// 10,000, default 50.
	Rounds int
}

// A Tally counts the rounds of one race by the number of winners. A contender wins if the server's
// reply reports success.
type Tally struct {
	Rounds  int `json:"rounds"`
	One     int `json:"oneWinner"`      // exactly one winner, with its write in the document
	Several int `json:"severalWinners"` // two or more: mutual exclusion is broken
	None    int `json:"noWinner"`       // no winner, or the only winner's write is not in the document
}

// A Report is the result of a check.
type Report struct {
	Contenders int
	// Acquire counts the rounds in which the contenders try to acquire a lock by findAndModify. In
	// half of the rounds the lock document is missing. In the other half the lock is free.
	Acquire Tally
	// CompareAndSet counts the rounds in which the contenders send an update with the expected value
	// in its filter.
	CompareAndSet Tally
	// Atomic reports whether every round of both races had exactly one winner. If Atomic is false, the
	// server must not keep locks. If it is true, more rounds give more confidence.
	Atomic bool
}

// String returns the report as one line of text.
func (r Report) String() string {
	verdict := "conditional updates are NOT atomic: this server must not keep locks"
	if r.Atomic {
		verdict = "conditional updates are atomic"
	}
	return fmt.Sprintf("%s (%d contenders; acquire: %v; compare-and-set: %v)",
		verdict, r.Contenders, r.Acquire, r.CompareAndSet)
}

// String returns the counts as text.
func (t Tally) String() string {
	return fmt.Sprintf("%d of %d rounds with exactly one winner, %d with several, %d with none",
		t.One, t.Rounds, t.Several, t.None)
}

// Check lets contenders race on scratch documents of a server and counts the winners. Keep locks
// only on a server for which the Report has Atomic set. A bare FerretDB v1 is not atomic: of 100
// measured rounds of compare-and-set, 97 had several winners. Races for a released lock had several
// winners about as often. Races for a new lock had one winner, because an _id is unique.
//
// Check creates a collection distlock_check_<random> and drops it afterwards, even after an error
// or the end of ctx. If only the drop fails, Check returns the complete report and an error. When
// ctx ends, Check waits at most 10 s for the commands of the current round. Each round sends one
// command for each contender, and at most three more.
func Check(ctx context.Context, client *mongo.Client, opts CheckOptions) (Report, error) {
	c, err := newContest(client, opts)
	if err != nil {
		return Report{}, err
	}
	report, err := c.run(ctx)
	if err != nil {
		err = fmt.Errorf("configserver: check: %w", err)
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if dropErr := c.scratch.Drop(cleanup); dropErr != nil {
		err = errors.Join(err, fmt.Errorf("configserver: check: drop scratch collection %q: %w",
			c.scratch.Name(), dropErr))
	}
	return report, err
}

func newContest(client *mongo.Client, opts CheckOptions) (*contest, error) {
	if client == nil {
		return nil, errors.New("configserver: check: the client is nil")
	}
	opts.Contenders, opts.Rounds = cmp.Or(opts.Contenders, 16), cmp.Or(opts.Rounds, 50)
	if opts.Contenders < 2 || opts.Contenders > maxContenders || opts.Rounds < 1 ||
		opts.Rounds > maxRounds {
		return nil, fmt.Errorf("configserver: check: %d contenders, must be 2 to %d; %d rounds, must be "+
			"1 to %d", opts.Contenders, maxContenders, opts.Rounds, maxRounds)
	}
	name := "distlock_check_" + bson.NewObjectID().Hex()
	scratch := client.Database(cmp.Or(opts.Database, "config")).Collection(name, options.Collection().
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	return &contest{scratch: scratch, contenders: opts.Contenders, rounds: opts.Rounds}, nil
}
