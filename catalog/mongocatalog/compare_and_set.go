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

// This file applies transitions by compare-and-set. It reads the document, computes the change with
// package transition, and writes the change if the document has not changed since the read. Every
// transition can be applied in this way. For common transitions on servers with pipeline updates,
// fast_path.go has commands that need no read. A compare-and-set reads the server's clock with the
// document, because only a pipeline update can write the clock into every field.

// A compare-and-set makes its first swapsAtOnce tries without a pause. Before each further try, it
// makes a random pause of at most swapPause.
const (
	swapsAtOnce = 3
	swapPause   = 20 * time.Millisecond
)

var errKeepsChanging = errors.New("other processes keep changing the document")

// bySwap applies a transition by compare-and-set and returns the resulting document. The first read
// returns majority-committed data. After a conflict, bySwap reads the latest data of the primary,
// because the filter of the write matches only the latest data. If the transition then fails or
// changes nothing, bySwap reads committed data again, so that its result is never based on data
// that may be rolled back.
func (c *Catalog) bySwap(ctx context.Context, o operation, t catalog.Transition) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	// Confirm begins with a read of the latest data, because the acquisition may not be committed yet.
	// The write of Confirm waits for the majority.
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
		m := swap(o.name, raw, change)
		doc, err := c.modify(ctx, o, m)
		index, duplicate := duplicateKey(err)
		if inserted := duplicate && index == idIndex && m.upsert; err != nil && !inserted {
			return l, nil, err
		}
		if doc != nil {
			l, _ := catalog.ParseLock(doc) // malformed if the fence exceeds its limit
			return l, change.Grants, nil
		}
		if try++; try > swapsAtOnce {
			select {
			case <-ctx.Done():
				return l, nil, o.wrap(fmt.Errorf("%w: %w", ctx.Err(), errKeepsChanging))
			case <-time.After(rand.N(swapPause)):
			}
		}
		committed = false
	}
}

// readTimed returns a lock document and the server's clock. If the document does not exist, raw is
// nil. Except on FerretDB, one command reads both.
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
			now, err = c.serverClock(ctx)
		} else { // the fence of a grant depends on the clock
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
	open := func(ctx context.Context) (*mongo.Cursor, error) {
		return from.Aggregate(ctx, timed(o.name))
	}
	err = c.each(ctx, o, open, func(row bson.Raw) bool {
		lock, _ := row.Lookup("lock").DocumentOK()
		ms, _ := row.Lookup("now").DateTimeOK()
		raw, now = slices.Clone(lock), time.UnixMilli(ms).UTC()
		return false
	})
	if err == nil && raw == nil {
		s, err = c.Hello(ctx)
		now = c.seedTime(s)
	}
	return raw, now, err
}

// timed returns the pipeline that reads a lock document and the server's clock.
func timed(name string) bson.A {
	return bson.A{matching(call("_id", name)), call("$project", bson.D{
		{Key: "_id", Value: int32(0)}, {Key: "lock", Value: "$$ROOT"}, {Key: "now", Value: "$$NOW"},
	})}
}

// answer is the projection of the document that a release or an eviction returns. It omits the
// waiters and adds the server's clock.
func answer() bson.D {
	return append(only("state", "process", "ts", "when", "fence", "mode", "limit", "sharers.ts",
		"sharers.process", "sharers.when", "sharers.fence", "grants", "evidence"),
		bson.E{Key: "now", Value: "$$NOW"})
}

// holdsWith is the filter for the lock that s holds, alone or with others.
func holdsWith(s catalog.Session) bson.D {
	holds := call("$in", s.TS, holding("$$p.ts", "$ts"))
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "$expr", Value: every(append(understood(), holds)...)},
	}
}

// swap returns the write of a change, on the condition that the document has not changed since it
// was read. If there was no document, read is nil. The filter compares three fields: state and ts,
// which foreign programs change, and rev, which this package changes.
func swap(name string, read bson.Raw, change catalog.Change) modification {
	set := change.Set
	filter := bson.D{{Key: "_id", Value: name}}
	if read != nil {
		filter = append(filter, unchanged(read, "ts"), unchanged(read, "state"),
			unchanged(read, "rev"))
	} else {
		for _, field := range []string{"fence", "process", "rev", "state", "ts"} {
			filter = append(filter, bson.E{Key: field, Value: absent})
		}
		if !has(set, "state") {
			set = append(bson.D{{Key: "state", Value: int32(0)}}, set...)
		}
	}
	next, _ := change.NextRev(read.Lookup("rev"))
	set = append(bson.D{{Key: "rev", Value: next}}, set...)
	return modification{filter: filter, update: updating(set, change.Unset, nil), upsert: read == nil}
}

// unchanged returns the condition that a field still has the value that was read.
func unchanged(read bson.Raw, field string) bson.E {
	if v := read.Lookup(field); v.Type != 0 {
		return bson.E{Key: field, Value: v}
	}
	return bson.E{Key: field, Value: absent}
}

func has(d bson.D, key string) bool {
	return slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == key })
}
