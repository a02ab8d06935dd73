package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

func onLock(op catalog.Op, name string) operation {
	return on(catalog.LocksCollection, "find, insert, update", string(op), name)
}

// Apply is documented in [catalog.Locks]. Every transition can be a compare-and-set. Enter, Leave,
// Evict, SeedFence and Renew also have a single command for suitable servers and documents.
func (c *Catalog) Apply(ctx context.Context, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	o := onLock(t.Op(), t.On())
	if s, ok := transition.Under(t); ok {
		o.session, _ = catalog.TransactionUnder(ctx, s).(*mongo.Session)
	}
	switch t := t.(type) { // on every server
	case transition.Enter:
		if err := t.Check(); err != nil {
			return catalog.Lock{}, nil, o.wrap(err)
		}
		if t.How == catalog.TryPlain {
			l, err := c.claim(ctx, o, t.Request)
			return l, nil, err
		}
	}
	server, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, nil, o.wrap(err)
	}
	switch t := t.(type) {
	case transition.Enter:
		return c.enter(ctx, o, server, t)
	case transition.Leave:
		return c.leave(ctx, o, server, t)
	}
	if server.PipelineUpdates {
		switch t := t.(type) {
		case transition.Evict:
			if !t.Waits { // an exclusive holder, followed by an exclusive waiter
				return c.fast(ctx, o, shortEviction(t.Holder, t.Evidence), t)
			}
		case transition.SeedFence:
			return c.fast(ctx, o, seeding(t.Session, t.AtLeast), t)
		case transition.Renew:
			return c.fast(ctx, o, renewing(t.Renewal), t)
		}
	}
	l, grants, err := c.bySwap(ctx, o, t)
	if _, ok := t.(transition.PutFirst); ok && err == nil {
		c.entered(l)
	}
	return l, grants, err
}

// fast sends the single command of a transition. If the command matches no document, fast runs a
// compare-and-set.
func (c *Catalog) fast(ctx context.Context, o operation, m modification, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	doc, err := c.modify(ctx, o, m)
	switch {
	case err != nil:
		return catalog.Lock{}, nil, err
	case doc == nil:
		return c.bySwap(ctx, o, t)
	case m.fields != nil: // not the whole document
		return catalog.Lock{}, fresh(doc), nil
	}
	l, err := o.understand(doc)
	return l, nil, err
}

// claim enters by [catalog.TryPlain], with one command.
func (c *Catalog) claim(ctx context.Context, o operation, r catalog.Request) (catalog.Lock, error) {
	doc, err := c.modify(ctx, o, acquisition(r))
	// If a foreign unique index rejects the document, waiting does not help. The server's error
	// names the index.
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	if err != nil {
		return catalog.Lock{}, err
	}
	return o.understand(doc)
}

// enter sends one command if the server has pipeline updates and this package wrote the document.
// Otherwise a compare-and-set follows, for example for readers that queue, or when two contenders
// insert the document at the same time.
func (c *Catalog) enter(ctx context.Context, o operation, s catalog.Server, t transition.Enter) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	m, ok := fastEntry(s, t.Request, t.How)
	if ok && t.Since.IsZero() { // otherwise the place may not be at the end
		doc, err := c.modify(ctx, o, m)
		index, duplicate := duplicateKey(err)
		if err != nil && (!duplicate || index != idIndex) {
			return catalog.Lock{}, nil, err
		}
		if l, bad := catalog.ParseLock(doc); err == nil && bad == nil && standsIn(l, t.TS) {
			c.entered(l)
			l, err := c.raised(ctx, o, t.Request, doc, l)
			return l, nil, err
		}
	}
	if l, grants, err = c.bySwap(ctx, o, t); err == nil {
		c.entered(l)
	}
	return l, grants, err
}

// fastEntry returns the command for the common case. In another case the document stays unchanged,
// and the upsert fails with DuplicateKey or returns a document without r.
func fastEntry(s catalog.Server, r catalog.Request, how catalog.EnterMode) (modification, bool) {
	switch {
	case r.Mode == catalog.Exclusive && how != catalog.Queue:
		return acquisition(r), true
	case !s.PipelineUpdates:
		return modification{}, false
	case r.Mode == catalog.Exclusive:
		return shortEntry(r), true
	}
	return sharedEntry(r, how), true
}

// standsIn reports whether a session holds the lock or waits for it.
func standsIn(l catalog.Lock, ts bson.ObjectID) bool {
	_, holds := l.HeldBy(ts)
	_, waits := l.WaitedBy(ts)
	return holds || waits
}

// If the fence of a lock that r has just acquired was counted up from zero, raised sets it to the
// clock. So a document that is inserted after a deletion has a larger fence. doc is the document
// after the acquisition. After an error r may hold the lock, so the outcome is unknown.
func (c *Catalog) raised(
	ctx context.Context, o operation, r catalog.Request, doc bson.Raw, l catalog.Lock,
) (_ catalog.Lock, err error) {
	if _, holds := l.HeldBy(r.TS); !holds || l.Fence >= transition.Seeded {
		return l, nil
	}
	defer func() {
		if err != nil && !errors.Is(err, catalog.ErrUnknownOutcome) {
			err = fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, err)
		}
	}()
	raise := transition.SeedFence{Session: r.Session, AtLeast: l.When.UnixMilli()}
	change, err := raise.Next(l, l.When)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	doc, err = c.trySwap(ctx, o, swap(r.Name, doc, change))
	switch {
	case err != nil:
		return catalog.Lock{}, err
	case doc != nil:
		return o.understand(doc)
	}
	l, _, err = c.bySwap(ctx, o, raise)
	return l, err
}

// entered records the lock's use.
func (c *Catalog) entered(l catalog.Lock) {
	c.used.note(l.Name, use{mode: l.Mode, line: len(l.Waiters) > 0})
}

// leave sends the command for the recorded use of the lock, and another one for the lock's first
// waiters. A compare-and-set follows if no document matches, for example when a waiter leaves, when
// a reader's release admits waiters, or after a write of another program.
func (c *Catalog) leave(ctx context.Context, o operation, s catalog.Server, t transition.Leave) (
	catalog.Lock, []catalog.Grant, error,
) {
	used := c.used.of(t.Name)
	if used == (use{}) {
		reply, err := c.write(ctx, o, plainRelease(t.Session))
		if err != nil || matched(reply) > 0 {
			return catalog.Lock{}, nil, err
		}
	}
	switch {
	case !s.PipelineUpdates:
		return c.bySwap(ctx, o, t)
	case used.mode != catalog.Exclusive:
		return c.fast(ctx, o, sharedDeparture(t.Session, used.mode), t)
	}
	doc, err := c.modify(ctx, o, shortDeparture(t.Session, ""))
	if err != nil {
		return catalog.Lock{}, nil, err
	}
	if doc == nil {
		return c.bySwap(ctx, o, t)
	}
	grants := fresh(doc)
	c.used.note(t.Name, use{line: len(grants) > 0})
	return catalog.Lock{}, grants, nil
}

// fresh returns the grants of the command that returned this document. It returns none for a
// document that is malformed because its fence reached the limit.
func fresh(doc bson.Raw) []catalog.Grant {
	l, _ := catalog.ParseLock(doc)
	ms, _ := doc.Lookup("now").DateTimeOK()
	now := time.UnixMilli(ms)
	var grants []catalog.Grant
	for _, a := range l.Grants {
		if p, ok := l.HeldBy(a.TS); ok && p.Since.Equal(now) {
			grants = append(grants, a)
		}
	}
	return grants
}

// A use describes a lock as this process last read it. It selects the first command for a release.
// A wrong guess costs a command that matches no document.
type use struct {
	mode catalog.Mode
	line bool // the lock had waiters
}

// A usedNames records the names of locks that had waiters or were not exclusive.
type usedNames struct {
	mu    sync.Mutex // guards names
	names map[string]use
}

// namesAtMost is the largest number of recorded names.
const namesAtMost = 10_000

func (n *usedNames) note(name string, u use) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case u == use{}:
		delete(n.names, name)
		return
	case n.names == nil || len(n.names) >= namesAtMost:
		n.names = map[string]use{}
	}
	n.names[name] = u
}

func (n *usedNames) of(name string) use {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}

func (o operation) understand(doc bson.Raw) (catalog.Lock, error) {
	l, bad := catalog.ParseLock(doc)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, nil
}

// Read is documented in [catalog.Locks]. It sends one command, after a Hello if this is the store's
// first command. The read concern is linearizable on a replica set, and majority on another server.
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	o := onLock(catalog.OpRead, name)
	s, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	from := c.locks
	if s.Kind == catalog.ReplicaSet {
		from = from.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	}
	raw, err := c.findOne(ctx, o, from, name)
	if err != nil {
		return catalog.Lock{}, err
	}
	if raw == nil {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFound)
	}
	return o.understand(raw)
}

// findOne returns the document with the string id, nil if it does not exist.
func (c *Catalog) findOne(
	ctx context.Context, o operation, from *mongo.Collection, id string,
) (raw bson.Raw, err error) {
	err = c.run(ctx, o, func(ctx context.Context) (err error) {
		raw, err = from.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = nil
		}
		return err
	})
	return raw, err
}

// matched returns the number of documents that an update matched or a delete removed.
func matched(reply bson.Raw) int {
	n, _ := reply.Lookup("n").AsInt64OK()
	return int(n)
}

// PruneLocks is documented in [catalog.Pings]. It sends one read in the order of _id, and one
// delete for the prunable documents, with a filter for the state, session and rev of each.
func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, most int) (
	pruned int, next string, err error,
) {
	o := on(catalog.LocksCollection, "find, remove", string(catalog.OpPruneLocks))
	var statements bson.A
	looked := 0
	find := options.Find().SetSort(byID).SetLimit(int64(most))
	err = c.find(ctx, o, c.locks, call("_id", call("$gt", after)), find, func(raw bson.Raw) {
		looked++
		next, _ = raw.Lookup("_id").StringValueOK()
		if s, rev, ok := catalog.Prunable(raw, before); ok {
			statements = append(statements, removing(unused(s, rev), 1))
		}
	})
	if looked < most {
		next = ""
	}
	if err != nil || len(statements) == 0 {
		return 0, next, err
	}
	reply, err := c.write(ctx, o, deletion(o.collection, statements...))
	if err != nil {
		return 0, next, err
	}
	return matched(reply), next, nil
}

// unused is the condition that a free lock was not written since the read.
func unused(s catalog.Session, rev int64) bson.D {
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "ts", Value: s.TS}, {Key: "rev", Value: rev},
		{Key: "state", Value: bson.D{{Key: "$gte", Value: int32(0)}, {Key: "$lte", Value: int32(0)}}},
		{Key: "waiters", Value: none}, unwaited,
	}
}
