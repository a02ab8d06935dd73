package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// This file carries out the transitions on a server without pipeline updates: read, ask package
// queue, and write if nobody else did meanwhile. Such a server does not write its clock where we
// need it, so it is asked for it.

// After swapsAtOnce tries in vain, each further one waits up to swapPause.
const (
	swapsAtOnce = 3
	swapPause   = 20 * time.Millisecond
)

// errKeepsChanging is what a compare-and-set says that lost to others until its time was up.
var errKeepsChanging = errors.New("others keep changing the document")

// A transition is one of package queue. changed is false when there is nothing to write.
type transition func(l catalog.Lock, now time.Time) (change queue.Change, changed bool, err error)

// bySwap carries out a transition. makes says that it may make the document. It returns the
// document as it is then.
func (c *Catalog) bySwap(ctx context.Context, o operation, makes bool, next transition) (
	l catalog.Lock, awards []catalog.Award, err error,
) {
	s, err := c.Hello(ctx)
	if err != nil {
		return l, nil, o.wrap(err)
	}
	for try := 1; ; try++ {
		raw, err := c.readUnderstood(ctx, o, o.name)
		if err != nil {
			return l, nil, err
		}
		seen := catalog.Lock{Name: o.name}
		if raw != nil {
			seen, _ = catalog.ParseLock(raw) // it was understood
		} else if !makes {
			return l, nil, o.wrap(catalog.ErrNoMatch)
		}
		change, changed, err := next(seen, s.Time)
		if err != nil {
			return l, nil, o.wrap(err)
		}
		if !changed {
			return seen, nil, nil
		}
		doc, err := c.trySwap(ctx, o, swap(o.name, raw, change))
		if err != nil {
			return l, nil, err
		}
		if doc != nil {
			l, _ := catalog.ParseLock(doc) // malformed when its fence came to an end: nobody has it
			return l, change.Awards, nil
		}
		if err := swapAgain(ctx, try); err != nil {
			return l, nil, o.wrap(err)
		}
	}
}

// trySwap returns nil when somebody else was faster.
func (c *Catalog) trySwap(ctx context.Context, o operation, m modification) (bson.Raw, error) {
	doc, err := c.modify(ctx, o, m)
	if index, ok := duplicateKey(err); ok && index == idIndex && m.upsert {
		return nil, nil
	}
	return doc, err
}

// swapAgain waits before the next try.
func swapAgain(ctx context.Context, try int) error {
	if try < swapsAtOnce {
		return nil
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), errKeepsChanging)
	case <-time.After(rand.N(swapPause)):
		return nil
	}
}

// enterBySwap is Enter by compare-and-set.
func (c *Catalog) enterBySwap(ctx context.Context, o operation, g catalog.Grant, how catalog.Line) (
	catalog.Lock, error,
) {
	l, _, err := c.bySwap(ctx, o, true, func(l catalog.Lock, now time.Time) (
		queue.Change, bool, error,
	) {
		return queue.Enter(l, g, how, now)
	})
	return l, err
}

func (c *Catalog) changeBySwap(ctx context.Context, o operation,
	next func(catalog.Lock, time.Time) (queue.Change, error)) ([]catalog.Award, error) {
	_, awards, err := c.bySwap(ctx, o, false, func(l catalog.Lock, now time.Time) (
		queue.Change, bool, error,
	) {
		change, err := next(l, now)
		return change, err == nil, err
	})
	return awards, err
}

// leaveBySwap frees a lock for which nobody waits in one command.
func (c *Catalog) leaveBySwap(ctx context.Context, o operation, s catalog.Session) (
	[]catalog.Award, error,
) {
	freed, err := c.free(ctx, o, plainRelease(s))
	if freed || err != nil {
		return nil, err
	}
	awards, err := c.changeBySwap(ctx, o, func(l catalog.Lock, now time.Time) (
		queue.Change, error,
	) {
		return queue.Leave(l, s.TS, now, "")
	})
	if !errors.Is(err, catalog.ErrMalformed) {
		return awards, err
	}
	raw, readErr := c.findOne(ctx, o, c.locks, s.Name)
	if readErr != nil {
		return nil, readErr
	}
	if freed, freeErr := c.free(ctx, o, rescueAsRead(s, raw)); freed || freeErr != nil {
		return nil, freeErr
	}
	return nil, err
}

// breakBySwap is Break by compare-and-set.
func (c *Catalog) breakBySwap(ctx context.Context, o operation, s catalog.Session, fence int64,
	ts bson.ObjectID, why string) (catalog.Lock, error) {
	for try := 1; ; try++ {
		raw, err := c.findOne(ctx, o, c.locks, s.Name)
		if err != nil {
			return catalog.Lock{}, err
		}
		l, err := o.breakable(raw, s, ts)
		if err != nil {
			return catalog.Lock{}, err
		}
		list, _ := raw.Lookup("sharers").ArrayOK()
		change, err := queue.Break(l, len(list) > emptyArray, s, fence, ts, why)
		if err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
		doc, err := c.trySwap(ctx, o, swap(s.Name, raw, change))
		if err != nil {
			return catalog.Lock{}, err
		}
		if doc != nil {
			return o.understand(doc)
		}
		if err := swapAgain(ctx, try); err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
	}
}

// emptyArray is the length of an array without elements.
const emptyArray = 5
