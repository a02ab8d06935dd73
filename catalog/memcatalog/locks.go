package memcatalog

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Apply is documented in [catalog.Locks].
func (c *Catalog) Apply(ctx context.Context, t catalog.Transition) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	op, name := t.Op(), t.On()
	enter, makes := t.(transition.Enter)
	if err = ctx.Err(); err == nil && makes {
		err = enter.Check()
	}
	if err != nil {
		return l, nil, failed(op, name, err)
	}
	now := serverDate(c.now())
	if s, ok := transition.Under(t); ok {
		if in, _ := catalog.TransactionUnder(ctx, s).(*Transaction); in != nil {
			return l, nil, c.applyIn(in, t, now)
		}
	}
	if err := c.forWrite(ctx, name); err != nil {
		return l, nil, failed(op, name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(name)])
	if doc == nil && makes {
		doc = blank(name)
	}
	l, change, err := c.decide(doc, t, now)
	if err != nil {
		return catalog.Lock{}, nil, failed(op, name, err)
	}
	if change.Nothing() {
		return l, nil, nil
	}
	l, err = c.turn(op, name, doc, change)
	unseeded := l.HeldAs(enter.TS, enter.Process) && l.Fence < transition.Seeded
	if err == nil && makes && enter.How != catalog.TryPlain && unseeded {
		// A second write raises a fence to the clock if it was counted up from zero, like on a
		// server.
		seed := transition.SeedFence{Session: enter.Session, AtLeast: l.When.UnixMilli()}
		if change, err := seed.Next(l, now); err == nil {
			l, err = c.turn(op, name, take(c.locks[stringKey(name)]), change)
			return l, nil, err
		}
	}
	return l, change.Grants, err
}

// blank returns the start of an inserted document: the equality fields of the upsert's filter.
func blank(name string) fields {
	return fields{{"_id", text(name)}, {"state", valueOf(int32(0))}}
}

// decide is [transition.Decide], but, like a server, it first tries TryPlain for an exclusive
// request that does not queue.
func (c *Catalog) decide(doc fields, t catalog.Transition, now time.Time) (
	catalog.Lock, catalog.Change, error,
) {
	var raw bson.Raw
	if doc != nil {
		raw = doc.raw()
	}
	switch this := t.(type) {
	case transition.Enter:
		if this.Mode == catalog.Exclusive && this.How != catalog.Queue && this.Since.IsZero() {
			this.How = catalog.TryPlain
			if l, change, err := transition.Decide(raw, this, now); err == nil {
				return l, change, nil
			}
		}
	case transition.Break:
		this.New = c.newID()
		t = this
	}
	return transition.Decide(raw, t, now)
}

// understood returns the parsed lock document, from the index if possible. The caller holds mu.
func (c *Catalog) understood(raw bson.Raw) (catalog.Lock, *catalog.MalformedError) {
	key, _ := keyOf(raw)
	if l, known := c.standing.locks[key]; known && same(raw, c.locks[key]) {
		return l, nil
	}
	return catalog.ParseLock(raw)
}

// lookAt returns the snapshot of a lock and its pings. The caller holds mu.
func (c *Catalog) lookAt(raw bson.Raw) catalog.Snapshot {
	l, bad := c.understood(raw)
	look := catalog.Snapshot{LockErr: bad}
	if bad == nil {
		look = l.Shown(c.beat)
	}
	look.ServerTime, look.Primary = serverDate(c.now()), c.primary
	return look
}

// Read is documented in [catalog.Locks].
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	const op = catalog.OpRead
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(op, name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raw := c.locks[stringKey(name)]
	if raw == nil {
		return catalog.Lock{}, failed(op, name, catalog.ErrNotFound)
	}
	l, bad := c.understood(raw)
	if bad != nil {
		return catalog.Lock{}, failed(op, name, bad)
	}
	return l, nil
}

func failed(op catalog.Op, of string, err error) error {
	return fmt.Errorf("%s %q: %w", op, of, err)
}

// List is documented in [catalog.Locks]. It reads all locks at one instant.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	return func(yield func(catalog.Snapshot, error) bool) {
		docs := c.documents()
		for i := 0; i == 0 || i < len(docs); i++ {
			if err := ctx.Err(); err != nil {
				yield(catalog.Snapshot{}, fmt.Errorf("list: %w", err))
				return
			}
			if i == len(docs) || waited && !awaited(take(docs[i])) {
				continue
			}
			if row, err := c.row(docs[i]); !yield(row, err) {
				return
			}
		}
	}
}

// documents returns the lock documents in the order of _id. A stored document is never changed in
// place.
func (c *Catalog) documents() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks.sorted()
}

func (c *Catalog) row(raw bson.Raw) (catalog.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := c.lookAt(raw)
	if row.LockErr != nil {
		return catalog.Snapshot{}, fmt.Errorf("list: %w", row.LockErr)
	}
	row.Primary = ""
	return row, nil
}
