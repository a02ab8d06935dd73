// Package memcatalog implements [catalog.Catalog] in memory, with real BSON documents and the
// semantics of a MongoDB server. For example, numbers of different types are compared by value, and
// dates come from the server's clock. There is one difference: a ping never replaces a malformed
// ping document here. On a server it may, because a server compares only the fields of the
// condition.
//
// The store is for tests, simulations and single-process programs. It writes no file, and other
// processes cannot use it. Every write takes effect immediately, so no operation returns
// [catalog.ErrUnknownOutcome].
//
// The store is deterministic. If the clock and the source of ObjectIDs are injected, the same
// sequence of calls results in the same documents, byte for byte. Lists are sorted by name.
package memcatalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// Options are the settings of a Catalog. The zero value is usable.
type Options struct {
	// Now returns the server's clock; default the machine's wall clock.
	Now func() time.Time
	// NewObjectID returns the session that a break writes into the lock; default bson.NewObjectID.
	NewObjectID func() bson.ObjectID
	// Primary is the initial value of [catalog.Server].Primary, see SetPrimary; default "memory".
	Primary string
}

// A Catalog is a store in memory, made by New. It is safe for concurrent use. If an open
// transaction wrote a lock, other writers of that lock wait until the transaction ends.
type Catalog struct {
	now   func() time.Time
	newID func() bson.ObjectID

	mu      sync.Mutex // guards the fields below
	locks   table
	pings   table
	primary string
	streams map[*stream]bool
	locked  map[string]*Transaction // open transactions, by the keys of the documents that they wrote
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
	return &Catalog{
		now:     opts.Now,
		newID:   opts.NewObjectID,
		locks:   table{},
		pings:   table{},
		primary: cmp.Or(opts.Primary, "memory"),
		streams: map[*stream]bool{},
		locked:  map[string]*Transaction{},
	}
}

// SetPrimary sets [catalog.Server].Primary, as an election does.
func (c *Catalog) SetPrimary(primary string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.primary = primary
}

// Put stores a document, as another program would. It replaces a document with the same _id. It
// returns an error if the collection does not exist, if doc has no _id, or if doc is not valid
// BSON.
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
		c.locks[key] = storedLock(raw)
	case catalog.PingsCollection:
		c.pings[key] = storedPing(raw)
	default:
		return fmt.Errorf("put into %q: no such collection", collection)
	}
	return nil
}

// Remove deletes the document with the string id as its _id, as an operator would. A missing
// document is not an error.
func (c *Catalog) Remove(collection, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.table(collection), stringKey(id))
}

// Document returns a copy of the document with the string id as its _id, or nil if the document
// does not exist.
func (c *Catalog) Document(collection, id string) bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.table(collection)[stringKey(id)].document())
}

// Documents returns copies of all documents of a collection, in the order of _id.
func (c *Catalog) Documents(collection string) []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	var docs []bson.Raw
	for _, doc := range c.table(collection).sorted() {
		docs = append(docs, slices.Clone(doc.raw))
	}
	return docs
}

// Hello returns the clock, the primary and the capabilities of the simulated server. It returns an
// error only if ctx is done.
func (c *Catalog) Hello(ctx context.Context) (catalog.Server, error) {
	now := serverDate(c.now())
	if err := c.begin(ctx, catalog.OpHello, ""); err != nil {
		return catalog.Server{}, err
	}
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

// begin locks mu for an operation. If ctx is done, begin returns an error instead.
func (c *Catalog) begin(ctx context.Context, op catalog.Op, of string) error {
	if err := ctx.Err(); err != nil {
		return failed(op, of, err)
	}
	c.mu.Lock()
	return nil
}

func failed(op catalog.Op, of string, err error) error {
	if of == "" {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s %q: %w", op, of, err)
}

// serverDate truncates t to milliseconds, like a BSON Date.
func serverDate(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
