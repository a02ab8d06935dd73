package configserver

import (
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

// The defaults and bounds of a check.
const (
	defaultDatabase   = "config"
	defaultContenders = 16
	defaultRounds     = 50
	maxContenders     = 256
	maxRounds         = 10_000
	// commandTimeout bounds each command of a contender, also when the caller's context has ended.
	commandTimeout = 10 * time.Second
	// dropTimeout bounds the removal of the scratch collection.
	dropTimeout = 10 * time.Second
)

// CheckOptions says how hard [Check] tries. The zero value is 50 rounds of 16 contenders in
// database config.
type CheckOptions struct {
	// Database is where the scratch collection is made; default "config". It should be the one
	// the locks live in: a config server lets nobody create another.
	Database string
	// Contenders is how many try at one instant; 2 to 256, default 16. The pool of the client
	// must allow as many connections, or fewer really race.
	Contenders int
	// Rounds is how often each of the two kinds of race is run; 1 to 10,000, default 50.
	Rounds int
}

// A Tally counts the rounds of one kind of race by how many contenders were told that they won.
type Tally struct {
	Rounds  int
	One     int // exactly one, and the document is as that one wrote it
	Several int // two or more: mutual exclusion is broken
	None    int // nobody, or the only winner's write is not in the document
}

// A Report is what a check found.
type Report struct {
	Contenders int
	// Acquire is the race of findAndModify in the shape of an acquisition: half of the rounds on
	// a document that does not exist yet, half on a free one.
	Acquire Tally
	// CompareAndSet is the race of updates that name the value they expect.
	CompareAndSet Tally
	// Atomic is set when every round of both had exactly one winner. It proves a server unfit
	// when false; when true, it is as good as the number of rounds.
	Atomic bool
}

// String returns the report in one line.
func (r Report) String() string {
	verdict := "conditional updates are NOT atomic: this server must not keep locks"
	if r.Atomic {
		verdict = "conditional updates are atomic"
	}
	return fmt.Sprintf("%s (%d contenders; acquire: %v; compare-and-set: %v)",
		verdict, r.Contenders, r.Acquire, r.CompareAndSet)
}

// String returns the figures in words.
func (t Tally) String() string {
	return fmt.Sprintf("%d of %d rounds with exactly one winner, %d with several, %d with none",
		t.One, t.Rounds, t.Several, t.None)
}

// Check races contenders on scratch documents of a server and counts how many win. A lock may be
// kept only on a server whose report is Atomic. A bare FerretDB v1 is not: measured, 97 of 100
// rounds of compare-and-set had several winners, and about as many acquisitions of a released
// lock; only the first acquisition of a name, decided by its unique _id, had one.
//
// It works in a collection of its own, distlock_check_<random>, and drops it afterwards, also when
// it failed or ctx has ended. An error means that the check could not be carried out, and the
// report then says nothing; only when the dropping alone failed it is complete. When ctx ends, the
// round that is under way is still awaited, for 10 s at most. Each round takes Contenders commands
// and at most four more.
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

// newContest checks the options and fills in the defaults.
func newContest(client *mongo.Client, opts CheckOptions) (*contest, error) {
	if client == nil {
		return nil, errors.New("configserver: check: the client is nil")
	}
	if opts.Database == "" {
		opts.Database = defaultDatabase
	}
	if opts.Contenders == 0 {
		opts.Contenders = defaultContenders
	}
	if opts.Rounds == 0 {
		opts.Rounds = defaultRounds
	}
	var problems []error
	if opts.Contenders < 2 || opts.Contenders > maxContenders {
		problems = append(problems, fmt.Errorf(
			"configserver: check: %d contenders, must be 2 to %d", opts.Contenders, maxContenders))
	}
	if opts.Rounds < 1 || opts.Rounds > maxRounds {
		problems = append(problems, fmt.Errorf(
			"configserver: check: %d rounds, must be 1 to %d", opts.Rounds, maxRounds))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	name := "distlock_check_" + bson.NewObjectID().Hex()
	scratch := client.Database(opts.Database).Collection(name, options.Collection().
		SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	return &contest{scratch: scratch, contenders: opts.Contenders, rounds: opts.Rounds}, nil
}
