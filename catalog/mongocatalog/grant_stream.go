package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// codeNoStreams lists the error codes for a refused change stream. A standalone returns
// 40573 or 20. Any server returns 73 for a system database.
var codeNoStreams = []int{20, 73, 40573}

// eventWait is the time that the server waits for an event before it replies.
const eventWait = time.Second

// A grantStream is a change stream on the collection locks.
type grantStream struct {
	c       *Catalog
	o       operation
	process string
	stream  *mongo.ChangeStream
}

var _ catalog.GrantStream = (*grantStream)(nil)

// GrantStream is documented in [catalog.Queues]. It sends one command. The stream occupies one
// connection while Next waits. After a network failure the driver reopens the stream.
func (c *Catalog) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	o := on(catalog.LocksCollection, "changeStream, find", string(catalog.OpGrantStream),
		process)
	o.database = c.database
	s, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	if !s.ChangeStreams {
		return nil, o.wrap(fmt.Errorf("%w: database %s of a %s has no change streams; use a database of "+
			"your own on a replica set", catalog.ErrNoGrantStream, c.database, s.Kind))
	}
	ctx, cancel, err := c.begin(ctx, nil)
	if err != nil {
		return nil, o.wrap(err)
	}
	defer cancel()
	stream, err := c.locks.Watch(ctx, grantEvents(process),
		options.ChangeStream().SetMaxAwaitTime(min(eventWait, c.timeout/2)))
	if hasCode(err, codeNoStreams...) {
		return nil, o.wrap(fmt.Errorf("%w: %w", catalog.ErrNoGrantStream, catalog.Shown(err)))
	}
	if err != nil {
		return nil, o.failed(err)
	}
	o.verb = string(catalog.OpNextGrants)
	return &grantStream{c: c, o: o, process: process, stream: stream}, nil
}

// grantEvents returns the pipeline that selects two kinds of events: grants to the given process,
// and the invalidation, which ends the stream. The event of a grant contains the whole document (in
// 4.4) or the changed fields.
func grantEvents(process string) bson.A {
	granted := bson.D{
		{Key: "$regex", Value: "^[0-9a-f]{24} [0-9]+ " + regexp.QuoteMeta(process) + "$"},
		{Key: "$options", Value: "m"},
	}
	inserted := bson.D{
		{Key: "operationType", Value: call("$in", bson.A{"insert", "replace"})},
		{Key: "fullDocument.state", Value: positive},
		{Key: "fullDocument.grants", Value: granted},
		{Key: "$or", Value: bson.A{
			call("fullDocument.process", process), call("fullDocument.sharers.process", process),
		}},
	}
	changed := bson.D{
		{Key: "operationType", Value: "update"},
		{Key: "updateDescription.updatedFields.grants", Value: granted},
	}
	return bson.A{
		matching(either(inserted, changed, call("operationType", "invalidate"))),
		call("$project", only("operationType", "documentKey", "fullDocument.grants",
			"fullDocument.evidence", "updateDescription.updatedFields.grants",
			"updateDescription.updatedFields.evidence")),
	}
}

var errStreamOver = errors.New("the change stream has ended")

// Next is documented in [catalog.GrantStream]. While there are no events, it sends one command per
// second, or one per CommandTimeout/2 if that is shorter.
func (n *grantStream) Next(ctx context.Context) ([]catalog.Grant, error) {
	for {
		found, err := n.step(ctx)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		event := n.stream.Current
		if kind, _ := event.Lookup("operationType").StringValueOK(); kind == "invalidate" {
			return nil, n.o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnavailable, errStreamOver))
		}
		if grants := n.grants(event); len(grants) > 0 {
			return grants, nil
		}
	}
}

// step waits for an event, at most for the time limit of one command.
func (n *grantStream) step(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, n.c.timeout)
	defer cancel()
	if n.stream.TryNext(ctx) {
		return true, nil
	}
	if err := n.stream.Err(); err != nil {
		return false, n.o.failed(err)
	}
	if n.stream.ID() == 0 {
		return false, n.o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnavailable, errStreamOver))
	}
	return false, nil
}

// grants returns the grants to the stream's process in an event. An event of MongoDB 4.4 may repeat
// earlier grants, for example after a new waiter was queued, because it contains the whole
// document.
func (n *grantStream) grants(event bson.Raw) []catalog.Grant {
	name, _ := event.Lookup("documentKey", "_id").StringValueOK()
	at := []string{"fullDocument"}
	if kind, _ := event.Lookup("operationType").StringValueOK(); kind == "update" {
		at = []string{"updateDescription", "updatedFields"}
	}
	text, _ := event.Lookup(append(at, "grants")...).StringValueOK()
	evidence, _ := event.Lookup(append(at, "evidence")...).StringValueOK()
	var grants []catalog.Grant
	for _, a := range catalog.ParseGrants(name, text, evidence) {
		if a.Process == n.process {
			grants = append(grants, a)
		}
	}
	return grants
}

// Close is documented in [catalog.GrantStream]. It takes at most the time limit of one command.
func (n *grantStream) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.c.timeout)
	defer cancel()
	_ = n.stream.Close(ctx) // the server closes an open cursor after its timeout
}
