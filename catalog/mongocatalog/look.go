package mongocatalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// Snapshots is documented in [catalog.Queues]. One command on a replica set or a standalone,
// whatever the number of names: an aggregate that brings the locks, the pings of their processes
// and the server's clock. A FerretDB knows no such aggregate: it is asked for its clock, the locks
// and the pings, in that order. A mongos has a clock of its own, so behind one the clock is that of
// this process's latest ping; a viewer, which has none, asks the mongos.
func (c *Catalog) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	if len(names) == 0 {
		return map[string]catalog.Snapshot{}, ctx.Err()
	}
	return c.looks(ctx, operation{
		verb: "look at " + fewOf(names), database: c.database, collection: catalog.LocksCollection, actions: "find",
	}, among("_id", names))
}

// WaitedUnder is documented in [catalog.Queues]. Its commands are those of Snapshots. An index
// serves it: of the locks for which one of the processes waits, those are left out whose waiters
// hold something else.
func (c *Catalog) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error,
) {
	if len(processes) == 0 || len(held) == 0 {
		return map[string]catalog.Snapshot{}, ctx.Err()
	}
	o := operation{
		verb: "read what holders wait for", database: c.database,
		collection: catalog.LocksCollection, actions: "find",
	}
	s, err := c.known(ctx)
	switch {
	case err != nil:
		return nil, o.wrap(err)
	case s.Kind == catalog.FerretDB || len(held) > mostHeld: // it looks into no array of an array
		return c.looks(ctx, o, awaitedByAny(processes))
	}
	return c.looks(ctx, o, awaitedUnder(processes, held))
}

// looks reads the locks that a filter matches, the pings of their processes, and the server's
// clock.
func (c *Catalog) looks(ctx context.Context, o operation, filter bson.D) (map[string]catalog.Snapshot, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	looks := map[string]catalog.Snapshot{}
	if joins(s) {
		err := c.lookAtOnce(ctx, o, filter, looks)
		return looks, err
	}
	nothing := catalog.Snapshot{ServerTime: c.pingTime.at()}
	if s.Kind != catalog.Mongos || c.viewer {
		if s, err = c.Hello(ctx); err != nil {
			return nil, o.wrap(err)
		}
		nothing.ServerTime, nothing.Primary = s.Time, s.Primary
		if c.viewer {
			nothing.ServerTime = c.ListingTime()
		}
	}
	var locks []bson.Raw
	err = c.find(ctx, o, c.locks, filter, options.Find(), func(raw bson.Raw) {
		locks = append(locks, slices.Clone(raw))
	})
	if err != nil {
		return nil, err
	}
	pings, err := c.pingsOf(ctx, o, locks)
	if err != nil {
		return nil, err
	}
	for _, raw := range locks {
		look := nothing
		fill(&look, raw, pings)
		if id, ok := raw.Lookup("_id").StringValueOK(); ok { // as every name is that is asked for
			looks[id] = look
		}
	}
	return looks, nil
}

// fewOf shows the first of many names, and how many there are.
func fewOf(names []string) string {
	const few = 3
	var shown []string
	for _, name := range names[:min(few, len(names))] {
		shown = append(shown, `"`+catalog.Printable(name, 200)+`"`)
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// joins reports whether the server can bring lock, pings and its own clock in one command. Behind a
// mongos $$NOW is the clock of the mongos, and 4.4 and 5.0 refuse a join with a sharded collection.
func joins(s catalog.Server) bool {
	return s.Kind == catalog.ReplicaSet || s.Kind == catalog.Standalone
}

func (c *Catalog) lookAtOnce(
	ctx context.Context, o operation, filter bson.D, looks map[string]catalog.Snapshot,
) error {
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Aggregate(ctx, observation(matching(filter)))
	})
	defer r.close(ctx)
	for r.next(ctx) {
		lock, pings, now := observed(r.row())
		look := catalog.Snapshot{ServerTime: now}
		fill(&look, lock, pings)
		if id, ok := lock.Lookup("_id").StringValueOK(); ok { // as every name is that is asked for
			looks[id] = look
		}
	}
	return r.err
}

// observed takes a row of an observation apart: the lock, the pings by process, and the clock.
func observed(row bson.Raw) (lock bson.Raw, pings map[string]bson.Raw, now time.Time) {
	lock, _ = row.Lookup("lock").DocumentOK()
	pings = map[string]bson.Raw{}
	if list, ok := row.Lookup("pings").ArrayOK(); ok {
		values, _ := list.Values() // the server made the array
		for _, v := range values {
			ping, _ := v.DocumentOK()
			if id, ok := ping.Lookup("_id").StringValueOK(); ok {
				pings[id] = ping
			}
		}
	}
	if ms, ok := row.Lookup("now").DateTimeOK(); ok {
		now = time.UnixMilli(ms).UTC()
	}
	return lock, pings, now
}

func fill(look *catalog.Snapshot, lock bson.Raw, pings map[string]bson.Raw) {
	l, bad := catalog.ParseLock(lock)
	if bad != nil {
		look.LockErr = bad
		return
	}
	look.Lock = &l
	look.Ping, look.PingErr = parsePing(l.Process, pings[l.Process])
	look.Pings = pulses(l, pings)
}

// pulses are the pings of all holders and waiters.
func pulses(l catalog.Lock, pings map[string]bson.Raw) map[string]catalog.PingState {
	parties := slices.Concat(l.Holders(), l.Waiters)
	if len(parties) == 0 {
		return nil
	}
	found := make(map[string]catalog.PingState, len(parties))
	for _, p := range parties {
		ping, bad := parsePing(p.Process, pings[p.Process])
		found[p.Process] = catalog.PingState{Ping: ping, Err: bad}
	}
	return found
}

// parsePing understands the ping document of a process; nothing when the process has no name or
// the document is missing.
func parsePing(process string, raw bson.Raw) (*catalog.Ping, *catalog.MalformedError) {
	if process == "" || raw == nil {
		return nil, nil
	}
	p, bad := catalog.ParsePing(raw)
	if bad != nil {
		return nil, bad
	}
	return &p, nil
}
