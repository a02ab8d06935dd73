package memcatalog

import (
	"context"
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
	doc := c.locks[stringKey(name)].fields()
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
	l = c.turn(name, doc, change)
	unseeded := l.HeldAs(enter.TS, enter.Process) && l.Fence < transition.Seeded
	if makes && enter.How != catalog.TryPlain && unseeded {
		// A second write raises a fence to the clock if it was counted up from zero, like on a
		// server.
		seed := transition.SeedFence{Session: enter.Session, AtLeast: l.When.UnixMilli()}
		if change, err := seed.Next(l, now); err == nil {
			return c.turn(name, c.locks[stringKey(name)].fields(), change), nil, nil
		}
	}
	return l, change.Grants, nil
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
		if this.New.IsZero() {
			this.New = c.newID()
		}
		t = this
	}
	return transition.Decide(raw, t, now)
}

// lookAt returns the snapshot of a lock and its pings. The caller holds mu.
func (c *Catalog) lookAt(doc *stored) catalog.Snapshot {
	look := catalog.Snapshot{LockErr: doc.bad}
	if doc.bad == nil {
		look = doc.lock.Shown(func(process string) catalog.PingState {
			if p := c.pings[stringKey(process)]; p != nil {
				return p.ping
			}
			return catalog.PingState{}
		})
	}
	look.ServerTime, look.Primary = serverDate(c.now()), c.primary
	return look
}

// Read is documented in [catalog.Locks].
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	const op = catalog.OpRead
	if err := c.begin(ctx, op, name); err != nil {
		return catalog.Lock{}, err
	}
	defer c.mu.Unlock()
	doc := c.locks[stringKey(name)]
	switch {
	case doc == nil:
		return catalog.Lock{}, failed(op, name, catalog.ErrNotFound)
	case doc.bad != nil:
		return catalog.Lock{}, failed(op, name, doc.bad)
	}
	return doc.lock, nil
}

// List is documented in [catalog.Locks]. It reads all locks at one instant.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	return func(yield func(catalog.Snapshot, error) bool) {
		rows, err := c.rows(ctx, waited)
		for _, row := range rows {
			if err = ctx.Err(); err != nil {
				break
			}
			var bad error
			if row.LockErr != nil {
				row, bad = catalog.Snapshot{}, failed(catalog.OpList, "", row.LockErr)
			}
			if !yield(row, bad) {
				return
			}
		}
		if err != nil {
			yield(catalog.Snapshot{}, failed(catalog.OpList, "", err))
		}
	}
}

func (c *Catalog) rows(ctx context.Context, waited bool) (rows []catalog.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, doc := range c.locks.sorted() {
		if !waited || awaited(doc.fields()) {
			row := c.lookAt(doc)
			row.Primary = ""
			rows = append(rows, row)
		}
	}
	return rows, nil
}
