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
	if s, ok := transition.Under(t); ok {
		if in, _ := catalog.TransactionUnder(ctx, s).(*Transaction); in != nil {
			l, err = c.applyIn(in, t)
			return l, nil, err
		}
	}
	now := serverDate(c.now())
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
	l = c.applyChange(name, doc, change)
	return l, change.Grants, nil
}

// blank returns the document of a new lock, with the fields that MongoDB copies from the filter of
// an upsert.
func blank(name string) fields {
	return fields{{"_id", valueOf(name)}, {"state", valueOf(int32(0))}}
}

// decide applies a transition to a document by [transition.Decide]. Like mongocatalog, it first
// tries the mode TryPlain for an exclusive request without a queue entry.
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

// snapshot returns the snapshot of a lock document. The caller holds mu.
func (c *Catalog) snapshot(doc *stored) catalog.Snapshot {
	snapshot := catalog.Snapshot{LockErr: doc.bad}
	if doc.bad == nil {
		snapshot = doc.lock.Shown(func(process string) catalog.PingState {
			if p := c.pings[stringKey(process)]; p != nil {
				return p.ping
			}
			return catalog.PingState{}
		})
	}
	snapshot.ServerTime, snapshot.Primary = serverDate(c.now()), c.primary
	return snapshot
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

// List is documented in [catalog.Locks]. It reads all locks at the same instant.
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
		if !waited || len(catalog.ProcessesIn(doc.raw, false)) > 0 {
			row := c.snapshot(doc)
			row.Primary = ""
			rows = append(rows, row)
		}
	}
	return rows, nil
}
