// Package memcatalog implements [catalog.Catalog] in memory, with real BSON documents and the
// semantics of a MongoDB server. For example, numbers of all types compare by value, {state: 0}
// does not match a missing or null state, and dates come from the server's clock.
//
// The store is for tests, simulations and single-process programs. It writes no file, and other
// processes cannot use it. Every write is applied immediately, so no operation returns
// [catalog.ErrUnknownOutcome].
//
// The store is deterministic: with an injected clock and source of ObjectIDs the same calls in the
// same order yield the same documents, byte for byte. Results come in the order of names.
package memcatalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// Options are the settings of a Catalog. The zero value is usable.
type Options struct {
	// Now is the server's clock; default the machine's wall clock.
	Now func() time.Time
	// NewObjectID makes the sessions that Break writes; default bson.NewObjectID.
	NewObjectID func() bson.ObjectID
	// Primary names the term of the server, see SetPrimary; default "memory".
	Primary string
}

// A Catalog is a store in memory, made by New. It is safe for concurrent use. An operation waits
// only for the mutex, and a write of a lock also for an open transaction that wrote the same lock.
type Catalog struct {
	now   func() time.Time
	newID func() bson.ObjectID

	mu       sync.Mutex // guards the fields below
	locks    table
	pings    table
	beats    map[string]catalog.PingState // cache of parsed pings by key
	standing standings                    // index of holders and waiters by process
	primary  string
	streams  map[*stream]bool
	locked   map[string]*Transaction // the open transaction that wrote the document
}

var _ catalog.Catalog = (*Catalog)(nil)

// New returns an empty store.
func New(opts Options) *Catalog {
	if opts.Now == nil {
		system := clock.System()
		opts.Now = func() time.Time { return system.Now().Wall }
	}
	if opts.NewObjectID == nil {
		opts.NewObjectID = bson.NewObjectID
	}
	if opts.Primary == "" {
		opts.Primary = "memory"
	}
	return &Catalog{
		now:      opts.Now,
		newID:    opts.NewObjectID,
		locks:    table{},
		pings:    table{},
		beats:    map[string]catalog.PingState{},
		standing: newStandings(),
		primary:  opts.Primary,
		streams:  map[*stream]bool{},
		locked:   map[string]*Transaction{},
	}
}

// SetPrimary changes the name of the server's term, like an election.
func (c *Catalog) SetPrimary(primary string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.primary = primary
}

// Put stores a document, as another program would. It replaces a document with the same _id. It
// returns an error if the collection does not exist, or if doc has no _id or is not valid BSON.
func (c *Catalog) Put(collection string, doc bson.D) error {
	raw, err := bson.Marshal(doc)
	if err != nil {
		return fmt.Errorf("put into %q: %w", collection, err)
	}
	key, ok := keyOf(raw)
	if !ok {
		return fmt.Errorf("put into %q: document has no _id", collection)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch collection {
	case catalog.LocksCollection:
		c.putLock(key, raw)
	case catalog.PingsCollection:
		c.putPing(key, raw)
	default:
		return fmt.Errorf("put into %q: no such collection", collection)
	}
	return nil
}

// Remove deletes the document with the string id, as an operator would. A missing one is ignored.
func (c *Catalog) Remove(collection, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch collection {
	case catalog.LocksCollection:
		c.standing.forget(stringKey(id))
		delete(c.locks, stringKey(id))
	case catalog.PingsCollection:
		c.putPing(stringKey(id), nil)
	}
}

// Document returns a copy of the document with the string id, nil if it does not exist.
func (c *Catalog) Document(collection, id string) bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clone(c.table(collection)[stringKey(id)])
}

// Documents returns copies of all documents of a collection, in the order of _id.
func (c *Catalog) Documents(collection string) []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	docs := c.table(collection).sorted()
	for i := range docs {
		docs[i] = clone(docs[i])
	}
	return docs
}

// Hello returns the server's clock and term. It returns an error only if ctx is done.
func (c *Catalog) Hello(ctx context.Context) (catalog.Server, error) {
	if err := ctx.Err(); err != nil {
		return catalog.Server{}, fmt.Errorf("hello: %w", err)
	}
	now := serverDate(c.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	return catalog.Server{
		Kind:    catalog.Memory,
		Version: "memory",
		Time:    now,
		Primary: c.primary,

		Transactions:  true,
		ChangeStreams: true,
	}, nil
}

// table returns a collection, nil if it does not exist. The caller holds mu.
func (c *Catalog) table(collection string) table {
	switch collection {
	case catalog.LocksCollection:
		return c.locks
	case catalog.PingsCollection:
		return c.pings
	default:
		return nil
	}
}

// putLock stores a lock document, updates standing, and returns the parsed document. The caller
// holds mu.
func (c *Catalog) putLock(key string, raw bson.Raw) (catalog.Lock, *catalog.MalformedError) {
	c.locks[key] = raw
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		c.standing.forget(key)
	} else {
		c.standing.remember(key, l)
	}
	return l, bad
}

// putPing stores a ping document. If raw is nil, it deletes the document. The caller holds mu.
func (c *Catalog) putPing(key string, raw bson.Raw) {
	delete(c.beats, key)
	if raw == nil {
		delete(c.pings, key)
	} else {
		c.pings[key] = raw
	}
}

// beat returns the parsed ping of a process. The caller holds mu.
func (c *Catalog) beat(process string) catalog.PingState {
	key := stringKey(process)
	state, known := c.beats[key]
	if raw := c.pings[key]; !known && raw != nil {
		state = catalog.PingStateOf(raw)
		c.beats[key] = state
	}
	return state
}

// serverDate truncates t to milliseconds, like a BSON Date.
func serverDate(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
