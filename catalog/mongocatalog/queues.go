package mongocatalog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// enter is one command where the server has pipeline updates and the document is as we write it;
// else a compare-and-set more, as for readers who stand in line and where two make the document of
// a lock at one instant.
func (c *Catalog) enter(ctx context.Context, o operation, server catalog.Server, t transition.Enter) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	m, ok := fastEntry(server, t.Request, t.How)
	if ok && t.Since.IsZero() { // else its place is not the end
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

// fastEntry is the one command of the common case. What it does not match is not changed: the
// upsert fails with DuplicateKey then, or brings a document in which r does not stand.
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

// raised raises the fence of a lock that r has just got, if that was counted up from nothing, so
// that the successor of a document that somebody deletes has a larger one. doc is the document as r
// left it.
func (c *Catalog) raised(ctx context.Context, o operation, r catalog.Request, doc bson.Raw, l catalog.Lock) (
	catalog.Lock, error,
) {
	if _, holds := l.HeldBy(r.TS); !holds || l.Fence >= transition.Seeded {
		return l, nil
	}
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

// entered remembers how a lock is used.
func (c *Catalog) entered(l catalog.Lock) {
	c.used.note(l.Name, use{mode: l.Mode, line: len(l.Waiters) > 0})
}

// leave is one command for a holder of a lock for which nobody waits, or somebody was seen to wait;
// one more for the first who is seen, and a compare-and-set more for a waiter, for readers who let
// others in, and for a document that is not as we write it.
func (c *Catalog) leave(ctx context.Context, o operation, server catalog.Server, t transition.Leave) (
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
	case !server.PipelineUpdates:
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

// fresh returns whom the very command granted the lock that brought this document. It is malformed
// when its fence came to an end: then nobody was granted it.
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

// HeldOrFree is documented in [catalog.Queues]. One command; what is held comes in the order of
// the names.
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names []string) (
	grants []catalog.Grant, free []string, err error,
) {
	if len(names) == 0 {
		return nil, nil, ctx.Err()
	}
	o := reading("ask for the grants of", process)
	s, err := c.known(ctx)
	if err != nil {
		return nil, nil, o.wrap(err)
	}
	locks := map[string]catalog.Lock{}
	find := options.Find()
	if s.Kind != catalog.FerretDB {
		find = find.SetHint(byID).SetProjection(withoutWords)
	}
	err = c.find(ctx, o, c.locks, heldOrFree(process, names), find, func(raw bson.Raw) {
		if l, bad := catalog.ParseLock(raw); bad == nil {
			locks[l.Name] = l
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		l, ok := locks[name]
		if ok && !l.Held {
			free = append(free, name)
		}
		grants = append(grants, l.GrantsOf(process)...)
	}
	return grants, free, nil
}
