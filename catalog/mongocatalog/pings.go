package mongocatalog

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// pruneBatch is the number of old pings that Prune deletes with one command.
const pruneBatch = 1000

func onPing(verb, process string) operation {
	return on(catalog.PingsCollection, "find, insert, update, remove", verb, process)
}

// Ping is documented in [catalog.Pings].
func (c *Catalog) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	o := onPing(string(catalog.OpPing), b.Process)
	reply, err := c.write(ctx, o, pinging(b).command(o.collection))
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return c.refusedPing(ctx, o, b)
	}
	if err != nil {
		return catalog.Pinged{}, err
	}
	doc, _ := reply.Lookup("value").DocumentOK() // a missing document is malformed
	p, bad := catalog.ParsePing(doc)
	if bad != nil {
		return catalog.Pinged{}, o.wrap(bad)
	}
	c.pingTime.set(p.At)
	updated, reported := reply.Lookup("lastErrorObject", "updatedExisting").BooleanOK()
	return catalog.Pinged{Ping: p, Inserted: reported && !updated}, nil
}

// refusedPing returns the result of a ping that matched no document. It reads the document to find
// the reason.
func (c *Catalog) refusedPing(ctx context.Context, o operation, b catalog.Heartbeat) (
	catalog.Pinged, error,
) {
	raw, err := c.findOne(ctx, onPing("read the ping of", b.Process), c.pings, b.Process)
	if err != nil {
		return catalog.Pinged{}, err
	}
	p, err := b.Judge(raw)
	if err != nil {
		return catalog.Pinged{}, o.wrap(err)
	}
	c.pingTime.set(p.At)
	return catalog.Pinged{Ping: p}, nil
}

// ApplyPing is documented in [catalog.Pings]. It sends one command. On FerretDB, it first reads the
// server's clock if the change sets a date in a subdocument.
func (c *Catalog) ApplyPing(ctx context.Context, t catalog.PingChange) error {
	process := t.On()
	o := onPing(string(t.Op()), process)
	u, err := t.Update()
	var now time.Time
	below := func(field string) bool { return strings.Contains(field, ".") }
	if err == nil && slices.ContainsFunc(u.Dates, below) {
		var s catalog.Server
		if s, err = c.known(ctx); err == nil && s.Kind == catalog.FerretDB {
			s, err = c.Hello(ctx)
			now = s.Time
		}
	}
	if err != nil {
		return o.wrap(err)
	}
	reply, err := c.write(ctx, o, changingPing(process, u, now))
	index, duplicate := duplicateKey(err)
	if duplicate && index == idIndex || err == nil && matched(reply) == 0 && !u.Removes {
		return o.wrap(catalog.ErrNoMatch)
	}
	return err
}

// heldBatch is the batch size of Held. It is so large that only the server's limit of 16 MiB ends a
// batch.
const heldBatch = 100_000

// Held is documented in [catalog.Pings]. It sends one command per 16 MiB of documents, which is
// about 100,000 locks.
func (c *Catalog) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	o := reading("read the locks of", process)
	s, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	filter, find := sessionsOf(process), options.Find().SetBatchSize(heldBatch)
	if s.PipelineUpdates {
		filter = append(filter, whole())
		find = find.SetProjection(sessionFields(process))
	}
	var sessions []catalog.HeldSession
	err = c.find(ctx, o, c.locks, filter, find, func(raw bson.Raw) {
		l, _ := catalog.ParseLock(raw) // a malformed document yields no sessions
		sessions = append(sessions, l.SessionsOf(process)...)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sessions, catalog.HeldSession.Compare)
	return sessions, nil
}

// OldPings is documented in [catalog.Pings]. It sends one command.
func (c *Catalog) OldPings(
	ctx context.Context, before time.Time,
) (old []catalog.OldPing, err error) {
	find := options.Find().SetProjection(only("ping", "pingMS")).
		SetLimit(catalog.MaxOldPings).SetBatchSize(catalog.MaxOldPings + 1)
	o := on(catalog.PingsCollection, "find", "read old pings")
	err = c.find(ctx, o, c.pings, olderThan(before), find, func(raw bson.Raw) {
		if p, ok := catalog.OldPingOf(raw); ok {
			old = append(old, p)
		}
	})
	return old, err
}

// Prune is documented in [catalog.Pings]. For each thousand old pings it sends two reads and one
// delete.
func (c *Catalog) Prune(ctx context.Context, old []catalog.OldPing) (int, error) {
	o := on(catalog.PingsCollection, "find, remove", "prune pings")
	pruned := 0
	for batch := range slices.Chunk(old, pruneBatch) {
		n, err := c.pruneBatch(ctx, o, batch)
		pruned += n
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

func (c *Catalog) pruneBatch(
	ctx context.Context, o operation, batch []catalog.OldPing,
) (int, error) {
	named := map[string]bool{}
	reading := o
	reading.collection = catalog.LocksCollection
	read := func(filter bson.D, held bool, fields ...string) error {
		find := options.Find().SetProjection(only(fields...))
		return c.find(ctx, reading, c.locks, filter, find, func(raw bson.Raw) {
			for _, process := range catalog.ProcessesIn(raw, held) {
				named[process] = true
			}
		})
	}
	ids := make([]string, len(batch))
	for i, p := range batch {
		ids[i] = p.Process
	}
	err := read(heldByAny(ids), true, "process", "sharers.process")
	if err == nil {
		err = read(awaitedByAny(ids), false, "waiters.process")
	}
	if err != nil {
		return 0, err
	}
	var statements bson.A
	for _, p := range batch {
		if !named[p.Process] {
			asRead := bson.D{{Key: "_id", Value: p.Process},
				{Key: "ping", Value: bson.NewDateTimeFromTime(p.At)}}
			statements = append(statements, removing(asRead, 1))
		}
	}
	if len(statements) == 0 {
		return 0, nil
	}
	reply, err := c.write(ctx, o, deletion(o.collection, statements...))
	if err != nil {
		return 0, err
	}
	return matched(reply), nil
}
