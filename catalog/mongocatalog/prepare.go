package mongocatalog

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// Codes of createIndexes when the keys have an index of another name or with other options.
const (
	codeIndexOptionsConflict    = 85
	codeIndexKeySpecsConflict   = 86
	codeNamespaceNotFound       = 26
	codeCommandNotSupportedView = 166
)

// Prepare is documented in [catalog.Pings]. Five commands. An index that exists under another name
// serves as well. It creates what it can, and returns the warnings even when something failed.
func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	err := errors.Join(
		c.createIndex(ctx, c.locks, "process", options.Index()),
		c.createIndex(ctx, c.locks, "sharers.process", options.Index().SetSparse(true)),
		c.createIndex(ctx, c.pings, "ping", options.Index()),
	)
	var warnings []string
	for _, collection := range []*mongo.Collection{c.locks, c.pings} {
		found, listErr := c.expiring(ctx, collection)
		warnings = append(warnings, found...)
		err = errors.Join(err, listErr)
	}
	return warnings, err
}

func (c *Catalog) createIndex(ctx context.Context, on *mongo.Collection, field string,
	how *options.IndexOptionsBuilder) error {
	o := operation{
		verb: "create the index on " + field + " of", name: on.Name(), quoted: true,
		database: c.database, collection: on.Name(), actions: "createIndex",
	}
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return o.wrap(err)
	}
	defer cancel()
	keys := bson.D{{Key: field, Value: int32(1)}}
	_, err = on.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: how})
	if hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict) || err == nil {
		return nil
	}
	return o.failed(err)
}

// expiring warns of indexes that delete documents by their age.
func (c *Catalog) expiring(ctx context.Context, on *mongo.Collection) ([]string, error) {
	o := operation{
		verb: "list the indexes of", name: on.Name(), quoted: true,
		database: c.database, collection: on.Name(), actions: "listIndexes",
	}
	var warnings []string
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return on.Indexes().List(ctx)
	})
	defer r.close(ctx)
	for r.next(ctx) {
		if r.row().Lookup("expireAfterSeconds").Type == 0 {
			continue
		}
		index, _ := r.row().Lookup("name").StringValueOK()
		warnings = append(warnings, fmt.Sprintf("index %q on %s.%s deletes documents by their "+
			"age, and with them the locks of living processes; drop it",
			catalog.Printable(index, 200), c.database, on.Name()))
	}
	if hasCode(r.err, codeNamespaceNotFound) {
		return nil, nil
	}
	return warnings, r.err
}
