package mongocatalog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
)

// Look is documented in [catalog.Locks]. One command on a replica set or a standalone: an
// aggregate that brings the lock, the ping of its process and the server's clock. A FerretDB knows
// no such aggregate: it is asked for its clock, the lock and the ping, in that order. A mongos has
// a clock of its own, so behind one the clock is that of this process's latest ping.
func (c *Catalog) Look(ctx context.Context, name string) (catalog.Look, error) {
	o := onLock("look at", name)
	s, err := c.known(ctx)
	if err != nil {
		return catalog.Look{}, o.wrap(err)
	}
	if joins(s) {
		return c.lookAtOnce(ctx, o)
	}
	look := catalog.Look{ServerTime: c.pingTime.at()}
	if s.Kind != catalog.Mongos {
		if s, err = c.Hello(ctx); err != nil {
			return catalog.Look{}, o.wrap(err)
		}
		look.ServerTime, look.Primary = s.Time, s.Primary
	}
	lock, err := c.findOne(ctx, o, c.locks, name)
	if err != nil || lock == nil {
		return look, err
	}
	l, bad := catalog.ParseLock(lock)
	var ping bson.Raw
	if bad == nil && l.Process != "" {
		ping, err = c.findOne(ctx, onPing("look at", l.Process), c.pings, l.Process)
		if err != nil {
			return catalog.Look{}, err
		}
	}
	fill(&look, lock, ping)
	return look, nil
}

// joins reports whether the server can bring lock, ping and its own clock in one command.
func joins(s catalog.Server) bool {
	return s.Kind == catalog.ReplicaSet || s.Kind == catalog.Standalone
}

func (c *Catalog) lookAtOnce(ctx context.Context, o operation) (catalog.Look, error) {
	o.database = c.database
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return catalog.Look{}, o.wrap(err)
	}
	defer cancel()
	match := bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: o.name}}}}
	cursor, err := c.locks.Aggregate(ctx, observation(match))
	if err != nil {
		return catalog.Look{}, o.failed(err)
	}
	rows, err := all(ctx, cursor)
	if err != nil {
		return catalog.Look{}, o.failed(err)
	}
	var look catalog.Look
	if len(rows) > 0 {
		lock, ping, now := observed(rows[0])
		look.ServerTime = now
		fill(&look, lock, ping)
	}
	return look, nil
}

// observed takes a row of an observation apart. The ping is nil when there is none.
func observed(row bson.Raw) (lock, ping bson.Raw, now time.Time) {
	lock, _ = row.Lookup("lock").DocumentOK()
	if pings, ok := row.Lookup("pings").ArrayOK(); ok {
		if values, err := pings.Values(); err == nil && len(values) > 0 {
			ping, _ = values[0].DocumentOK()
		}
	}
	if ms, ok := row.Lookup("now").DateTimeOK(); ok {
		now = time.UnixMilli(ms).UTC()
	}
	return lock, ping, now
}

func fill(look *catalog.Look, lock, ping bson.Raw) {
	l, bad := catalog.ParseLock(lock)
	if bad != nil {
		look.LockErr = bad
		return
	}
	look.Lock = &l
	look.Ping, look.PingErr = parsePing(l.Process, ping)
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

// all reads a short cursor to its end and closes it.
func all(ctx context.Context, cursor *mongo.Cursor) ([]bson.Raw, error) {
	var rows []bson.Raw
	for cursor.Next(ctx) {
		rows = append(rows, append(bson.Raw(nil), cursor.Current...))
	}
	err := cursor.Err()
	// The rows are here; a cursor that could not be closed ends by itself on the server.
	_ = cursor.Close(ctx)
	return rows, err
}
