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

// codeNoTransactions lists the error codes for a refused transaction. A standalone returns
// 20. A replica set returns 263 for the database named config.
var codeNoTransactions = []int{20, 263}

// Transact pauses before it tries again. The first pause is at most runPause. Each later pause is
// at most runPauseMost. If the server ends the transaction after at least runsWithout calls of the
// given function, Transact gives up.
const (
	runPause     = 5 * time.Millisecond
	runPauseMost = 100 * time.Millisecond
	runsWithout  = 3

	codeNoSuchTransaction = 251
)

// commitPause is the pause between two tries to commit.
const commitPause = 100 * time.Millisecond

// Transact is documented in [catalog.Transactions]. Every try updates the lock document, with a
// filter that requires s among the holders. The update raises rev, because an update that changes
// nothing causes no conflict (measured on 4.4).
//
// In the first try, Transact sends the update after the call of the given function. After a
// conflict, Transact sends the update first. It calls the function again only after the update has
// succeeded. After the update, the server lets plain writes of other clients wait for the
// transaction, and fails the writes of other transactions.
//
// Transact does not use the driver's retry loop, because that loop continues for two minutes even
// if the lock is lost.
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
	runs := 0
	counted := func(ctx context.Context) error {
		runs++
		return run(ctx)
	}
	for pause := runPause; ; pause = min(2*pause, runPauseMost) {
		err := c.transactOnce(ctx, o, s, runs > 0, counted)
		if err == nil || !transient(err) {
			return err
		}
		if hasCode(err, codeNoSuchTransaction) && runs >= runsWithout {
			return o.wrap(fmt.Errorf("%w: the server ended the transaction in each of %d runs: work "+
				"did not return an error of one of its commands, or took longer than the server's "+
				"transactionLifetimeLimitSeconds", withoutLabels{err}, runs))
		}
		select {
		case <-ctx.Done():
			return o.wrap(fmt.Errorf("%w: %w", context.Cause(ctx), withoutLabels{err}))
		case <-time.After(pause/2 + rand.N(pause)/2):
		}
	}
}

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

// withoutLabels hides the error labels of the driver, so that the caller does not run the
// transaction again.
type withoutLabels struct{ error }

// transactOnce runs the transaction once. If first is set, it writes the lock document before it
// calls the given function, and otherwise after the call. Errors:
//   - an error of the function, unchanged;
//   - ErrNoMatch if s does not hold the lock;
//   - a transient error, after which no write was applied;
//   - ErrUnknownOutcome of a commit.
func (c *Catalog) transactOnce(ctx context.Context, o operation, s catalog.Session, first bool,
	run func(ctx context.Context) error) error {
	session, err := c.db.Client().StartSession()
	if err != nil {
		return o.wrap(err)
	}
	defer c.end(ctx, session) // also when run panics
	err = session.StartTransaction(options.Transaction().
		SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary()))
	if err != nil {
		return o.wrap(err)
	}
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
	return c.commit(ctx, session, o)
}

// catchUp reads a lock document through a mongos, so that the mongos learns the time of the latest
// write. A transaction behind a mongos reads the data of the latest time that the mongos knows.
// Without catchUp, the mongos learns this time only from the reply to a write, which waits for a
// majority. With frequent writes, every transaction would then conflict. On a replica set, a
// transaction reads the latest data, so catchUp does nothing.
func (c *Catalog) catchUp(ctx context.Context, o operation, name string) error {
	server, err := c.known(ctx)
	if err != nil || server.Kind != catalog.Mongos {
		return err
	}
	latest := c.locks.Clone(options.Collection().SetReadConcern(readconcern.Local()))
	_, err = c.findOne(ctx, o, latest, name)
	return err
}

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

// commit commits the transaction. It tries again while ctx is not done and another try may
// determine the outcome. That is harmless, because the server recognizes a transaction that was
// already committed.
//
// The driver sends each commit up to two times and returns the error of the last try. So the commit
// may have been applied although the driver returns an error. Only one reply proves that the commit
// was not applied: NoSuchTransaction with the label TransientTransactionError. The server sends
// this reply only if the abort is majority-committed. The label alone proves nothing, because the
// driver also sets it when it clears its pool.
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

// end ends the session, and aborts its transaction if the transaction is still open. If ctx is
// done, end returns immediately, and a goroutine does this work.
func (c *Catalog) end(ctx context.Context, session *mongo.Session) {
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
		defer cancel()
		session.EndSession(ctx)
	}
	if ctx.Err() != nil {
		go end() // ends within the time limit of a command
		return
	}
	end()
}

// transient reports whether the error proves that no write was applied, and that another try may
// succeed.
func transient(err error) bool {
	return labeled(err, driver.TransientTransactionError) && !errors.Is(err, catalog.ErrUnknownOutcome)
}

func labeled(err error, label string) bool {
	var e mongo.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

// EnterTransaction is documented in [catalog.Queues]. It sends two commands inside the transaction.
// If the fence is below transition.Seeded, it also reads the server's clock with one command
// outside the transaction. The document does not show the holder. Until the transaction ends, a
// write of another session waits or conflicts. EnterTransaction reads the document first, because a
// failed write would end the transaction.
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
	var now time.Time
	if l.Fence < transition.Seeded { // the next fence depends on the clock
		if server, err = c.Hello(ctx); err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
		now = c.seedTime(server)
	}
	reply, err := c.db.RunCommand(within, passage(r, l, raw, now).inTransaction(o.collection)).Raw()
	if err != nil {
		return catalog.Lock{}, o.inTransaction(err)
	}
	doc, ok := reply.Lookup("value").DocumentOK()
	if !ok { // another command of this transaction changed the document
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	return o.understand(doc)
}

// passage returns the write for a session that holds the lock only inside its transaction.
func passage(r catalog.Request, l catalog.Lock, read bson.Raw, now time.Time) modification {
	change := transition.Passage(l, r, now)
	change.Set = slices.DeleteFunc(change.Set, func(e bson.E) bool { return e.Key == "when" })
	m := swap(r.Name, read, change)
	update, _ := m.update.(bson.D) // swap never returns a pipeline
	m.update = append(update, bson.E{Key: "$currentDate", Value: call("when", true)})
	return m
}

// inTransaction returns the command without a write concern. In a transaction, only the commit may
// have a write concern.
func (m modification) inTransaction(collection string) bson.D {
	command := m.command(collection)
	return command[:len(command)-1]
}

// nameTooMany is the name of an error of MongoDB 9.0 and later. The server returns it if it cannot
// begin a transaction because too many are open (maxConcurrentMultiDocumentTransactions, default
// 10,000).
const nameTooMany = "TooManyOpenTransactions"

// inTransaction wraps an error of a command in a transaction. errors.As finds the driver's error in
// the result. The driver's retry loop reads the labels of that error.
func (o operation) inTransaction(err error) error {
	if hasCode(err, codeNoTransactions...) {
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrNoTransactions, catalog.Shown(err)))
	}
	var command mongo.CommandError
	crowded := errors.As(err, &command) && command.Name == nameTooMany
	if crowded || overloaded(err) {
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnavailable, catalog.Shown(err)))
	}
	return o.wrap(catalog.Shown(err))
}
