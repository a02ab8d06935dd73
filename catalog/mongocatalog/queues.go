package mongocatalog

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// entryTries is how often Enter is sent. Only a document that is made, removed or damaged at the
// same moment needs more than one.
const entryTries = 4

// Enter is documented in [catalog.Queues]. One command where the server has pipeline updates and g
// wants the lock for itself, or tries; one more when the lock is shared or its document is not as we
// write it, and when two make the document of a lock at one instant.
func (c *Catalog) Enter(ctx context.Context, g catalog.Grant, how catalog.Line) (
	catalog.Lock, error,
) {
	o := onLock("enter", g.Name)
	if err := g.Check(); err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	s, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	if !s.PipelineUpdates {
		return c.enterBySwap(ctx, o, g, how)
	}
	short := g.Mode == catalog.Exclusive && how == catalog.Queue
	c.shared.note(g.Name, g.Mode != catalog.Exclusive)
	for try := 1; ; try++ {
		m := entry(g, how)
		if short {
			m = shortEntry(g)
		}
		doc, err := c.modify(ctx, o, m)
		index, duplicate := duplicateKey(err)
		if !duplicate || index != idIndex {
			if err != nil {
				return catalog.Lock{}, err
			}
			return entered(o, doc, g, how)
		}
		if short { // not the common case
			short, try = false, 0
			continue
		}
		if try == 1 {
			continue
		}
		if _, err := c.readUnderstood(ctx, o, g.Name); err != nil {
			return catalog.Lock{}, err
		}
		if try == entryTries {
			return catalog.Lock{}, err
		}
	}
}

// entered understands the document after an Enter. Where g is not in it, package queue says why.
func entered(o operation, doc bson.Raw, g catalog.Grant, how catalog.Line) (catalog.Lock, error) {
	l, bad := catalog.ParseLock(doc)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	_, holds := l.HeldBy(g.TS)
	_, waits := l.WaitedBy(g.TS)
	if holds || waits {
		return l, nil
	}
	if _, _, err := queue.Enter(l, g, how, l.When); err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	return catalog.Lock{}, o.wrap(catalog.ErrNoMatch) // the server and package queue disagree
}

// readUnderstood reads a lock document, nil when there is none. It fails for a malformed one.
func (c *Catalog) readUnderstood(ctx context.Context, o operation, name string) (
	bson.Raw, error,
) {
	raw, err := c.findOne(ctx, o, c.locks, name)
	if err != nil || raw == nil {
		return nil, err
	}
	if _, bad := catalog.ParseLock(raw); bad != nil {
		return nil, o.wrap(bad)
	}
	return raw, nil
}

// Release is documented in [catalog.Locks]. One command for a holder; one more for a waiter, and for a
// document that is not as we write it; two more for a session that is not in it.
func (c *Catalog) Release(ctx context.Context, s catalog.Session) error {
	_, err := c.leave(ctx, onLock("release", s.Name), s)
	return err
}

// Leave is documented in [catalog.Queues]. It costs what Release does.
func (c *Catalog) Leave(ctx context.Context, s catalog.Session) ([]catalog.Award, error) {
	return c.leave(ctx, onLock("leave", s.Name), s)
}

func (c *Catalog) leave(ctx context.Context, o operation, s catalog.Session) (
	[]catalog.Award, error,
) {
	server, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	if !server.PipelineUpdates {
		return c.leaveBySwap(ctx, o, s)
	}
	var doc bson.Raw
	if !c.shared.has(s.Name) {
		if doc, err = c.modify(ctx, o, shortDeparture(s)); err != nil {
			return nil, err
		}
	}
	if doc == nil {
		if doc, err = c.modify(ctx, o, departure(s)); err != nil {
			return nil, err
		}
	}
	if doc != nil {
		return fresh(doc), nil
	}
	if freed, err := c.free(ctx, o, rescue(s)); freed || err != nil {
		return nil, err
	}
	return nil, c.unmatched(ctx, o)
}

// free sends a plain release and reports whether it freed the lock.
func (c *Catalog) free(ctx context.Context, o operation, command bson.D) (bool, error) {
	reply, err := c.write(ctx, o, command)
	if err != nil {
		return false, err
	}
	return matched(reply) > 0, nil
}

// Bury is documented in [catalog.Queues]. One command where the server has pipeline updates; one
// more when the document is not as it was watched.
func (c *Catalog) Bury(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Award, error,
) {
	o := onLock("bury a session of", dead.Name)
	return c.change(ctx, o, burial(dead, evidence), func(l catalog.Lock, now time.Time) (
		queue.Change, error,
	) {
		watched := func(p catalog.Party) bool { return p.TS == dead.TS && p.Process == dead.Process }
		if !slices.ContainsFunc(slices.Concat(l.Holders(), l.Waiters), watched) {
			return queue.Change{}, catalog.ErrNoMatch
		}
		return queue.Leave(l, dead.TS, now, evidence)
	})
}

// Settle is documented in [catalog.Queues]. It costs what Bury does.
func (c *Catalog) Settle(ctx context.Context, name string) ([]catalog.Award, error) {
	o := onLock("settle", name)
	awards, err := c.change(ctx, o, settlement(name), settled)
	if err == nil && len(awards) == 0 {
		return nil, o.wrap(catalog.ErrNoMatch)
	}
	return awards, err
}

// settled is queue.Settle of a lock that is free.
func settled(l catalog.Lock, now time.Time) (queue.Change, error) {
	if l.Held {
		return queue.Change{}, catalog.ErrNoMatch
	}
	return queue.Settle(l, now)
}

// change carries out a transition of a document that must be there: m where the server can, and
// else the transition itself.
func (c *Catalog) change(ctx context.Context, o operation, m modification,
	transition func(catalog.Lock, time.Time) (queue.Change, error)) ([]catalog.Award, error) {
	server, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	if !server.PipelineUpdates {
		return c.changeBySwap(ctx, o, transition)
	}
	doc, err := c.modify(ctx, o, m)
	if err != nil {
		return nil, err
	}
	if doc != nil {
		return fresh(doc), nil
	}
	return nil, c.unmatched(ctx, o)
}

// fresh returns whom the very command granted the lock that brought this document. It is malformed when
// its fence came to an end: then nobody was granted it.
func fresh(doc bson.Raw) []catalog.Award {
	l, _ := catalog.ParseLock(doc)
	ms, _ := doc.Lookup("now").DateTimeOK()
	now := time.UnixMilli(ms)
	var awards []catalog.Award
	for _, a := range l.Awards {
		if p, ok := l.HeldBy(a.TS); ok && p.Since.Equal(now) {
			awards = append(awards, a)
		}
	}
	return awards
}

// Awarded is documented in [catalog.Queues]. One command; what is awarded comes in the order of the
// names.
func (c *Catalog) Awarded(ctx context.Context, process string, names []string) (
	awards []catalog.Award, free []string, err error,
) {
	if len(names) == 0 {
		return nil, nil, ctx.Err()
	}
	o := operation{
		verb: "ask for the awards of", name: process, quoted: true, database: c.database,
		collection: catalog.LocksCollection, actions: "find",
	}
	s, err := c.known(ctx)
	if err != nil {
		return nil, nil, o.wrap(err)
	}
	locks := map[string]catalog.Lock{}
	filter, find := understoodOnly(s, awarded(process, names))
	err = c.find(ctx, o, c.locks, filter, find, func(raw bson.Raw) {
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
		awards = append(awards, l.AwardsOf(process)...)
	}
	return awards, free, nil
}
