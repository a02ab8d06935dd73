package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// EnterTransaction is documented in [catalog.Queues]. Two commands inside the transaction, and one
// outside for the server's clock where the lock has no fence yet. The document stays free: the
// write that nobody else sees before the transaction ends is what keeps others away, and a write of
// theirs waits for it or conflicts with it. What is refused is refused by a read, for a write that
// fails would end the transaction.
func (c *Catalog) EnterTransaction(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	o := onLock("enter in a transaction", r.Name)
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
	if s.Time.IsZero() {
		return c.pingTime.at(), nil
	}
	return s.Time, nil
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
	return o.wrap(catalog.Shown(err))
}
