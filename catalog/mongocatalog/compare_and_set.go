package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// This file carries out the transitions by compare-and-set: read, ask package transition, and write
// if nobody else did meanwhile. It is the form of every transition; for the common ones
// fast_path.go has one that needs no reading, where the server has pipeline updates. On a server
// without them its clock is asked for, since such a server does not write it where we need it.

// After swapsAtOnce tries in vain, each further one waits up to swapPause.
const (
	swapsAtOnce = 3
	swapPause   = 20 * time.Millisecond
)

// errKeepsChanging is what a compare-and-set says that lost to others until its time was up.
var errKeepsChanging = errors.New("others keep changing the document")

// bySwap carries out a transition, and returns the document as it is then. Who lost to another
// reads what the primary has, committed or not, since the write names it: committed states alone
// would let through one write for each commit. What is decided without a write is decided on what
// is committed.
func (c *Catalog) bySwap(ctx context.Context, o operation, t catalog.Transition) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	// What Confirm asks about may not be committed yet; the write that follows waits for the majority.
	_, confirms := t.(transition.Confirm)
	committed := !confirms
	for try := 1; ; {
		raw, now, err := c.readTimed(ctx, o, committed)
		if err != nil {
			return l, nil, err
		}
		seen, change, err := transition.Decide(raw, t, now)
		changed := err == nil && !change.Nothing()
		if !changed && !committed {
			committed = true
			continue
		}
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
			return l, change.Grants, nil
		}
		if err := swapAgain(ctx, try); err != nil {
			return l, nil, o.wrap(err)
		}
		try++
		committed = false
	}
}

// readTimed reads a lock document, nil when there is none, and the server's clock: in one command
// where the server brings both.
func (c *Catalog) readTimed(ctx context.Context, o operation, committed bool) (
	raw bson.Raw, now time.Time, err error,
) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, now, o.wrap(err)
	}
	if s.Kind == catalog.FerretDB {
		if raw, err = c.findOne(ctx, o, c.locks, o.name); err != nil {
			return nil, now, err
		}
		fence, _ := raw.Lookup("fence").AsInt64OK()
		if fence >= transition.Seeded {
			now, err = c.clock(ctx)
		} else { // the fence will be taken from the clock
			s, err = c.Hello(ctx)
			now = s.Time
		}
		if err != nil {
			return nil, now, o.wrap(err)
		}
		return raw, now, nil
	}
	from := c.locks
	if !committed {
		from = from.Clone(options.Collection().SetReadConcern(readconcern.Local()))
	}
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return from.Aggregate(ctx, timed(o.name))
	})
	defer r.close(ctx)
	if !r.next(ctx) {
		if r.err == nil {
			s, r.err = c.Hello(ctx)
		}
		return nil, c.seedTime(s), r.err
	}
	raw, _ = r.row().Lookup("lock").DocumentOK()
	ms, _ := r.row().Lookup("now").DateTimeOK()
	return slices.Clone(raw), time.UnixMilli(ms).UTC(), nil
}

// timed brings a lock document and the server's clock.
func timed(name string) bson.A {
	return bson.A{
		matching(bson.D{{Key: "_id", Value: name}}),
		bson.D{{Key: "$project", Value: bson.D{
			{Key: "_id", Value: int32(0)}, {Key: "lock", Value: "$$ROOT"}, {Key: "now", Value: "$$NOW"},
		}}},
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
