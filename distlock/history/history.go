// Package history records the events of locks in the collection lockhistory. No lock depends on it.
//
// A [Log] is an Observer of package distlock. It inserts one document for each event:
//
//	past, err := history.New(client, "distlock", history.Options{})
//	cfg := distlock.Config{Client: client, URI: uri, Database: "distlock", Observer: past}
//
// A TTL index removes entries that are older than [Options.Keep]. The embedded server has no TTL
// indexes: there the Log keeps the newest 1,000 entries.
package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

const (
	// Collection is the name of the collection, which is in the database of the locks.
	Collection = "lockhistory"

	buffer  = 2000             // largest number of entries that wait for the server
	gather  = time.Second      // pause before the first insert, and between two inserts
	retry   = 10 * time.Second // pause after a failed insert
	timeout = 30 * time.Second // limit of an insert, with the creation of indexes before it
	most    = 1000             // largest number of entries on a server without TTL indexes
)

// An Entry is a document of the collection. A field that does not apply is zero and not stored.
// Escape the texts before you print them.
type Entry struct {
	ID bson.ObjectID `bson:"_id"`
	// At is the time of the event by the server's clock, estimated from the last ping. Before the
	// first ping, it is the time by the machine's clock.
	At       time.Time     `bson:"at"`
	Kind     string        `bson:"kind"` // the word of the [distlock.EventKind]
	Name     string        `bson:"name"` // of the lock
	Process  string        `bson:"process,omitempty"`
	Previous string        `bson:"previous,omitempty"`
	Session  bson.ObjectID `bson:"ts,omitempty"`
	Fence    int64         `bson:"fence,omitempty"`
	Mode     string        `bson:"mode,omitempty"`
	Label    string        `bson:"label,omitempty"` // "election" if the lock is leadership
	Why      string        `bson:"why,omitempty"`
	Rule     string        `bson:"rule,omitempty"`
	Evidence string        `bson:"evidence,omitempty"`
	Cause    string        `bson:"cause,omitempty"`    // of a loss or of a failed release
	WaitedMS int64         `bson:"waitedMS,omitempty"` // of an acquisition
	HeldMS   int64         `bson:"heldMS,omitempty"`
}

// Options are the options of a [Log]. The zero value means the defaults.
type Options struct {
	// Keep is the age at which the server removes an entry: 1 min to 10 years, default 30 days. The
	// first process creates the TTL index with its value of Keep. A later process with another value
	// only logs a warning.
	Keep   time.Duration
	Logger zerolog.Logger // default silent
}

// A Log inserts the events of Managers and Inspectors into the collection. Make it with [New]. Its
// methods are safe for concurrent use, except Close. No call of package distlock waits for a Log:
// one goroutine inserts the entries, each within about a second. A process that dies loses the
// entries of the last second. While inserts fail, the Log keeps 2,000 entries and drops later ones.
type Log struct {
	insert  func(context.Context, []Entry) error
	log     zerolog.Logger
	skew    atomic.Int64 // nanoseconds: the server's clock minus the clock of this machine
	dropped atomic.Int64

	ctx    context.Context // context of the worker; Close cancels it
	stop   context.CancelFunc
	worker sync.WaitGroup

	mu              sync.Mutex // guards the next three fields
	waiting         []Entry
	working, closed bool // working: the worker runs

	// The worker alone uses the fields below. Close uses them after the worker has ended.
	c        *mongo.Collection
	keep     time.Duration
	failing  bool // the last insert failed
	prepared bool // the indexes exist, or the server refuses them
	bounded  bool // the server has no TTL indexes
}

// New returns a Log that uses client and does not close it. No I/O: the first entry creates the
// collection and its indexes. Errors: *distlock.ConfigError.
func New(client *mongo.Client, database string, o Options) (*Log, error) {
	l := &Log{keep: cmp.Or(o.Keep, 720*time.Hour),
		log: o.Logger.With().Str("collection", database+"."+Collection).Logger()}
	if client == nil || database == "" || l.keep < time.Minute || l.keep > 87600*time.Hour {
		return nil, &distlock.ConfigError{Problems: []string{fmt.Sprintf("history: client and database "+
			"must be set; Keep is %v, must be from 1m to 87600h", l.keep)}}
	}
	l.c = client.Database(database).Collection(Collection,
		options.Collection().SetWriteConcern(writeconcern.Majority()))
	l.insert = l.insertMany
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Dropped returns the number of entries that the Log has dropped.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// Observe implements [distlock.Observer]. It does not block.
func (l *Log) Observe(e distlock.Event) {
	entry := Entry{
		ID: bson.NewObjectID(), At: e.At.Add(time.Duration(l.skew.Load())), Kind: e.Kind.String(),
		Name: e.Name, Process: e.Process, Previous: e.Previous, Session: e.Session, Fence: e.Fence,
		Mode: e.Mode, Label: e.Label, Why: e.Why, Rule: e.Rule, Evidence: e.Evidence,
		HeldMS: e.Held.Milliseconds(),
	}
	switch e.Kind {
	case distlock.EventAcquired, distlock.EventGranted, distlock.EventTakenOver:
		entry.WaitedMS = e.Waited.Milliseconds()
	case distlock.EventReleased, distlock.EventReleasedLate, distlock.EventLost,
		distlock.EventDropped, distlock.EventBroken, distlock.EventEvicted:
	case distlock.EventPing:
		l.skew.Store(int64(e.Skew))
		return
	default:
		return
	}
	if lost := (*distlock.LostError)(nil); errors.As(e.Err, &lost) && lost.Cause != nil {
		e.Err = lost.Cause
	}
	if e.Err != nil {
		text := e.Err.Error()
		entry.Cause = strings.ToValidUTF8(text[:min(len(text), 1024)], "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) == buffer {
		l.dropped.Add(1)
		return
	}
	l.waiting = append(l.waiting, entry)
	if !l.working {
		l.working = true
		l.worker.Go(l.work)
	}
}

// work is the only goroutine of a Log. It ends when all entries are inserted, or with Close.
func (l *Log) work() {
	for pause := gather; pause > 0 && clock.Sleep(clock.System(), pause, l.ctx.Done()); {
		pause, _ = l.flush(l.ctx) // flush logs the error
	}
}

// flush inserts the waiting entries. It returns the time until the next flush, or 0 if all entries
// are inserted. Only one goroutine at a time may call it.
func (l *Log) flush(ctx context.Context) (pause time.Duration, err error) {
	l.mu.Lock()
	next := l.waiting
	l.mu.Unlock()
	if len(next) > 0 {
		err = l.insert(ctx, next)
	}
	if err != nil {
		if err = catalog.Shown(err); !l.failing && ctx.Err() == nil {
			l.log.Warn().Err(err).Msg("history is not written")
			l.failing = true
		}
		return retry, err
	}
	l.failing = false
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting = l.waiting[len(next):]; len(l.waiting) > 0 {
		return gather, nil
	}
	l.working = false
	return 0, nil
}

// Close inserts the pending entries. Close the Manager first, because the Log drops later events.
// After an error some entries are not inserted.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.worker.Wait()
	_, err := l.flush(ctx)
	return err
}

// insertMany inserts entries. After an error it may be called again with the same entries. It
// inserts each entry only once.
func (l *Log) insertMany(ctx context.Context, entries []Entry) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !l.prepared {
		if err := l.prepare(ctx); err != nil {
			return err
		}
	}
	_, err := l.c.InsertMany(ctx, entries, options.InsertMany().SetOrdered(false))
	var refused mongo.BulkWriteException
	other := func(e mongo.BulkWriteError) bool { return e.Code != 11000 } // DuplicateKey
	if errors.As(err, &refused) && refused.WriteConcernError == nil &&
		!slices.ContainsFunc(refused.WriteErrors, other) {
		err = nil // an earlier call has inserted the entries
	}
	if err != nil || !l.bounded {
		return err
	}
	dated := bson.D{{Key: "at", Value: bson.D{{Key: "$gt", Value: bson.DateTime(0)}}}}
	last, err := l.c.FindOne(ctx, dated, options.FindOne().SetSort(newest).SetSkip(most-1)).Raw()
	if err == nil {
		older := bson.D{{Key: "at", Value: bson.D{{Key: "$lt", Value: last.Lookup("at")}}}}
		_, err = l.c.DeleteMany(ctx, older)
	}
	if errors.Is(err, mongo.ErrNoDocuments) { // there are fewer entries
		return nil
	}
	return err
}

// prepare creates the indexes. If the server refuses them, the Log works without indexes.
func (l *Log) prepare(ctx context.Context) error {
	at := bson.D{{Key: "at", Value: int32(1)}}
	byAge := options.Index().SetExpireAfterSeconds(int32(l.keep / time.Second))
	_, err := l.c.Indexes().CreateMany(ctx, []mongo.IndexModel{{Keys: at, Options: byAge},
		{Keys: append(bson.D{{Key: "name", Value: int32(1)}}, at...)}})
	var refused mongo.ServerError
	if err != nil && (!errors.As(err, &refused) || mongo.IsNetworkError(err)) {
		return err
	}
	l.prepared, l.bounded = true, err != nil && refused.HasErrorCode(238) // NotImplemented
	if err != nil && !l.bounded {
		l.log.Warn().Err(catalog.Shown(err)).Msg("indexes of the history are not created")
	}
	return nil
}

var newest = bson.D{{Key: "at", Value: int32(-1)}}

// A Query selects entries. The zero value selects all.
type Query struct {
	Name  string    // of the lock; "" for all locks
	Since time.Time // the server's clock; zero for any age
	Limit int       // the largest number of documents, the newest; 0 for all
}

// Read returns the entries of all processes, the newest first. It also returns an error for each
// document that it cannot parse. Errors: [distlock.ErrUnavailable] if the server does not answer;
// those of the driver.
func Read(ctx context.Context, client *mongo.Client, database string, q Query) (
	entries []Entry, malformed []*distlock.MalformedError, err error) {
	filter := bson.D{}
	if q.Name != "" {
		filter = append(filter, bson.E{Key: "name", Value: q.Name})
	}
	if !q.Since.IsZero() {
		filter = append(filter, bson.E{Key: "at", Value: bson.D{{Key: "$gte", Value: q.Since}}})
	}
	var all []bson.Raw
	cursor, err := client.Database(database).Collection(Collection).Find(ctx, filter,
		options.Find().SetSort(newest).SetLimit(int64(max(0, q.Limit))))
	if err == nil {
		err = cursor.All(ctx, &all)
	}
	if mongo.IsTimeout(err) || mongo.IsNetworkError(err) {
		err = fmt.Errorf("%w: %w", distlock.ErrUnavailable, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("distlock: read %s.%s: %w", database, Collection, catalog.Shown(err))
	}
	for _, raw := range all {
		var entry Entry
		if bson.Unmarshal(raw, &entry) == nil && raw.Lookup("at").Type == bson.TypeDateTime {
			entries = append(entries, entry)
			continue
		}
		malformed = append(malformed, &distlock.MalformedError{Collection: Collection, Field: "at",
			ID: raw.Lookup("_id").String(), Problem: "or another field is missing or has a wrong type"})
	}
	// The server does not order entries of the same millisecond.
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(b.At.Compare(a.At), bytes.Compare(b.ID[:], a.ID[:]))
	})
	return entries, malformed, nil
}
