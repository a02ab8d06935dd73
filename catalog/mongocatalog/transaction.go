package mongocatalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// codeNoTransactions are the codes with which servers refuse a transaction: a standalone (20), a
// replica set for database config (263).
var codeNoTransactions = []int{20, 263}

// After a conflict the next run waits, from runPause up to runPauseMost. A transaction that the
// server has ended in runsWithout runs is not tried again.
const (
	runPause     = 5 * time.Millisecond
	runPauseMost = 100 * time.Millisecond
	runsWithout  = 3

	codeNoSuchTransaction = 251
)

// commitPause is the time between two tries to commit while nobody knows the outcome.
const commitPause = 100 * time.Millisecond

// Transact is documented in [catalog.Transactions]. Every run holds an update of the lock document
// with a filter for s among the holders that raises rev: a real change, since a write that changes
// nothing conflicts with nothing (measured on 4.4). Once one ended in a conflict it comes first,
// and is tried alone until it is through: then a plain write of others waits in the server for the
// transaction, and one of another transaction fails. The driver's own loop is not used: it goes on
// for two minutes whatever the lock does.
func (c *Catalog) Transact(ctx context.Context, s catalog.Session,
	run func(ctx context.Context) error) error {
	o := onLock(catalog.OpTransact, s.Name)
	o.actions = "find, update"
	server, err := c.known(ctx)
	if err != nil {
		return o.wrap(err)
	}
	if !server.Transactions {
		return o.wrap(noTransactions(server, c.database))
	}
	session, err := c.db.Client().StartSession()
	if err != nil {
		return o.wrap(err)
	}
	defer c.end(ctx, session)
	runs := 0
	counted := func(ctx context.Context) error {
		runs++
		return run(ctx)
	}
	for pause := runPause; ; pause = min(2*pause, runPauseMost) {
		err := c.transactOnce(ctx, session, o, s, runs > 0, counted)
		if err == nil || !transient(err) {
			return err
		}
		if hasCode(err, codeNoSuchTransaction) && runs >= runsWithout {
			return o.wrap(fmt.Errorf("%w: the server had ended the transaction in each of %d runs: work "+
				"kept back an error of one of its commands, or takes longer than the server's "+
				"transactionLifetimeLimitSeconds", withoutLabels{err}, runs))
		}
		select {
		case <-ctx.Done():
			return o.wrap(fmt.Errorf("%w: %w", context.Cause(ctx), withoutLabels{err}))
		case <-time.After(pause/2 + rand.N(pause)/2):
		}
	}
}

// noTransactions says what a deployment lacks for transactions.
func noTransactions(s catalog.Server, database string) error {
	if s.Kind == catalog.ReplicaSet {
		return fmt.Errorf("%w: database %s of a replica set has none; use a database of your own",
			catalog.ErrNoTransactions, database)
	}
	kind := "a " + string(s.Kind)
	if s.Front {
		kind = "the embedded server"
	}
	return fmt.Errorf("%w: %s has none; use a replica set", catalog.ErrNoTransactions, kind)
}

// withoutLabels hides the driver's labels, so that nobody above runs the transaction again.
type withoutLabels struct{ error }

// transactOnce is one run; first says that the lock document is written before it. Its errors are:
// those of run, untouched; ErrNoMatch when the lock is not held by s; transient ones, after which
// everything was undone; ErrUnknownOutcome of a commit.
func (c *Catalog) transactOnce(ctx context.Context, session *mongo.Session, o operation,
	s catalog.Session, first bool, run func(ctx context.Context) error) error {
	err := session.StartTransaction(options.Transaction().
		SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	if err != nil {
		return o.wrap(err)
	}
	finished := false
	defer func() { // also when run panics
		if !finished {
			c.abort(ctx, session)
		}
	}()
	within := mongo.NewSessionContext(ctx, session)
	if first {
		if err := c.catchUp(ctx, o, s.Name); err != nil {
			return err
		}
		if err := c.touch(within, o, s); err != nil {
			return err
		}
	}
	if err := run(catalog.WithTransaction(within, s, session)); err != nil {
		return err
	}
	if !first {
		if err := c.touch(within, o, s); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return o.wrap(context.Cause(ctx))
	}
	finished = true
	return c.commit(ctx, session, o)
}

// catchUp lets a mongos know the latest write to a lock document, by a read of it. A transaction
// behind a mongos sees what there was at the latest time that it knows, and it learns of a write
// with the reply, which waits for a majority: a session that is busy there would make every write
// of ours conflict. A replica set shows the latest state.
func (c *Catalog) catchUp(ctx context.Context, o operation, name string) error {
	server, err := c.known(ctx)
	if err != nil || server.Kind != catalog.Mongos {
		return err
	}
	latest := c.locks.Clone(options.Collection().SetReadConcern(readconcern.Local()))
	_, err = c.findOne(ctx, o, latest, name)
	return err
}

// touch writes the lock document inside of the transaction that within carries.
func (c *Catalog) touch(within context.Context, o operation, s catalog.Session) error {
	result, err := c.locks.UpdateOne(within, holdsWith(s), bson.D{{Key: "$inc", Value: revised}})
	if err != nil {
		return o.inTransaction(err)
	}
	if result.MatchedCount > 0 {
		return nil
	}
	raw, err := c.findOne(within, o, c.locks, s.Name)
	if err == nil && raw != nil {
		_, err = o.understand(raw)
	}
	return cmp.Or(err, o.wrap(catalog.ErrNoMatch))
}

// commit commits, and tries again while that may tell more and ctx lasts. Committing again is
// harmless: the server knows the transaction. The driver sends a commit a second time by itself and
// tells of the last try alone, so whatever fails may be applied: only the server's word on this
// very transaction says that it was not. That is NoSuchTransaction with the label for running it
// again, which the server gives only where a majority has that. The label alone is no such word:
// the driver gives it to a pool that was cleared.
func (c *Catalog) commit(ctx context.Context, session *mongo.Session, o operation) error {
	for {
		err := session.CommitTransaction(ctx)
		if err == nil {
			return nil
		}
		undone := labeled(err, driver.TransientTransactionError)
		gone := hasCode(err, codeNoSuchTransaction)
		if undone && gone {
			return o.inTransaction(err)
		}
		unknown := o.wrap(fmt.Errorf("%w: commit: %w", catalog.ErrUnknownOutcome, withoutLabels{err}))
		again := labeled(err, driver.UnknownTransactionCommitResult) || neverSent(err) || overloaded(err)
		if !undone && !gone && !again {
			return unknown
		}
		select {
		case <-ctx.Done():
			return unknown
		case <-time.After(commitPause):
		}
	}
}

// abort gives the transaction up before another run. What fails here the server ends by itself;
// once ctx has ended it is left to end.
func (c *Catalog) abort(ctx context.Context, session *mongo.Session) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_ = session.AbortTransaction(ctx)
}

// end ends the session, and aborts the transaction that still runs in it. A caller whose context
// has ended does not wait for that.
func (c *Catalog) end(ctx context.Context, session *mongo.Session) {
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		session.EndSession(ctx)
	}
	if ctx.Err() != nil {
		go end() // ends within the limit of a command
		return
	}
	end()
}

// transient reports whether everything was undone and a further run may succeed.
func transient(err error) bool {
	return labeled(err, driver.TransientTransactionError) && !errors.Is(err, catalog.ErrUnknownOutcome)
}

func labeled(err error, label string) bool {
	var e mongo.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

// EnterTransaction is documented in [catalog.Queues]. Two commands inside the transaction, and one
// outside for the server's clock where the lock has no fence yet. The document stays free: the
// write that nobody else sees before the transaction ends is what keeps others away, and a write of
// theirs waits for it or conflicts with it. What is refused is refused by a read, for a write that
// fails would end the transaction.
func (c *Catalog) EnterTransaction(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	o := onLock(catalog.OpEnterTransaction, r.Name)
	server, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	if !server.Transactions {
		return catalog.Lock{}, o.wrap(noTransactions(server, c.database))
	}
	session := mongo.SessionFromContext(ctx)
	if session == nil || !session.TransactionRunning() {
		return catalog.Lock{}, o.wrap(fmt.Errorf("%w: the context carries no running transaction; call "+
			"it with the context that Session.WithTransaction passes", catalog.ErrNoTransactions))
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	raw, err := c.locks.FindOne(within, bson.D{{Key: "_id", Value: r.Name}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		raw, err = nil, nil
	}
	if err != nil {
		return catalog.Lock{}, o.inTransaction(err)
	}
	l := catalog.Lock{Name: r.Name}
	if raw != nil {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(raw); bad != nil {
			return catalog.Lock{}, o.wrap(bad)
		}
	}
	if l.Held || len(l.Waiters) > 0 {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	now, err := c.fencing(ctx, o, l)
	if err != nil {
		return catalog.Lock{}, err
	}
	reply, err := c.db.RunCommand(within, passage(r, l, raw, now).inTransaction(o.collection)).Raw()
	if err != nil {
		return catalog.Lock{}, o.inTransaction(err)
	}
	doc, ok := reply.Lookup("value").DocumentOK()
	if !ok { // the transaction saw a document that its own client changed meanwhile
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	return o.understand(doc)
}

// fencing returns the server's clock where the next fence hangs on it, else zero.
func (c *Catalog) fencing(ctx context.Context, o operation, l catalog.Lock) (time.Time, error) {
	if l.Fence >= transition.Seeded {
		return time.Time{}, nil
	}
	s, err := c.Hello(ctx)
	if err != nil {
		return time.Time{}, o.wrap(err)
	}
	return c.seedTime(s), nil
}

// passage is the write of a session that holds the lock for its transaction only.
func passage(r catalog.Request, l catalog.Lock, read bson.Raw, now time.Time) modification {
	change := transition.Passage(l, r, now)
	change.Set = slices.DeleteFunc(change.Set, func(e bson.E) bool { return e.Key == "when" })
	m := swap(r.Name, read, change)
	update, _ := m.update.(bson.D) // swap makes no pipeline
	m.update = append(update, bson.E{
		Key: "$currentDate", Value: bson.D{{Key: "when", Value: true}},
	})
	return m
}

// inTransaction is the command without a write concern, which only a commit has.
func (m modification) inTransaction(collection string) bson.D {
	command := m.command(collection)
	return command[:len(command)-1]
}

// inTransaction words an error of a transaction. The driver's error, and with it the label by which
// its loop runs the transaction again, stays reachable.
func (o operation) inTransaction(err error) error {
	if hasCode(err, codeNoTransactions...) {
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrNoTransactions, catalog.Shown(err)))
	}
	if overloaded(err) {
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnavailable, catalog.Shown(err)))
	}
	return o.wrap(catalog.Shown(err))
}
