package mongocatalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// Error codes of the server. The first two mean that an index with the same keys exists, but with
// another name or other options.
const (
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
	codeNamespaceNotFound     = 26
)

// An index describes an index for the queries of this package. The document of a free lock still
// contains its last holder until it is pruned. The indexes on locks contain only the locks with
// holders or waiters. So the cost of a query does not grow with the number of free locks.
//
// An acquisition writes one index entry, and the release removes the entry. If a process queues or
// shares the lock, it writes one more entry, and removes it when it leaves. A grant to the next
// waiter writes one entry and removes one.
//
// The indexes are partial and not sparse. A client with apiStrict (the Stable API of MongoDB 5.0
// and newer) can neither create nor use a sparse index (SERVER-53997, SERVER-94424).
type index struct {
	field string
	name  string // empty for the server's default name
	only  bson.D // filter of the indexed documents; nil for all
}

// indexesOn returns the required indexes of a collection. FerretDB v1 has no partial indexes, so
// its indexes have no filter.
func indexesOn(collection string, s catalog.Server) []index {
	switch {
	case collection == catalog.PingsCollection:
		return []index{{field: "ping"}}
	case s.Kind == catalog.FerretDB:
		return []index{{field: "process"}, {field: "sharers.process"}, {field: "waiters.process"}}
	}
	return []index{
		{field: "process", only: bson.D{{Key: "state", Value: positive}}},
		participantIndex("sharers.process"),
		participantIndex("waiters.process"),
	}
}

func participantIndex(field string) index {
	return index{
		field: field, name: field + "_1_partial", only: bson.D{{Key: field, Value: there}},
	}
}

// Prepare is documented in [catalog.Pings]. It sends two commands, and one more for each missing
// index. After an error it continues with the next index. It returns warnings even with an error.
// If another index prevents the creation, Prepare returns a warning.
func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	var warnings []string
	var errs []error
	for _, from := range []*mongo.Collection{c.locks, c.pings} {
		found, err := c.indexes(ctx, from)
		errs = append(errs, err)
		warnings = append(warnings, c.expiring(from, found)...)
		for _, want := range indexesOn(from.Name(), s) {
			warning, err := c.provide(ctx, from, want, found)
			errs = append(errs, err)
			if warning != "" {
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings, errors.Join(errs...)
}

// MissingIndexes returns the shell commands for the indexes that Prepare would create in the
// existing collections. It changes nothing on the server. After the first Hello, it sends two
// commands.
func (c *Catalog) MissingIndexes(ctx context.Context) ([]string, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	var commands []string
	for _, from := range []*mongo.Collection{c.locks, c.pings} {
		found, err := c.indexes(ctx, from)
		if err != nil {
			return commands, err
		}
		if len(found) == 0 { // every existing collection has an index on _id
			continue
		}
		for _, want := range indexesOn(from.Name(), s) {
			if !slices.ContainsFunc(found, want.matches) {
				commands = append(commands, want.creating(c.database, from.Name()))
			}
		}
	}
	return commands, nil
}

// ExpiringIndexes returns a warning for each index that deletes documents by their age. It sends
// two commands, and changes nothing on the server.
func (c *Catalog) ExpiringIndexes(ctx context.Context) (warnings []string, err error) {
	for _, from := range []*mongo.Collection{c.locks, c.pings} {
		found, one := c.indexes(ctx, from)
		err = errors.Join(err, one)
		warnings = append(warnings, c.expiring(from, found)...)
	}
	return warnings, err
}

func (i index) creating(database, collection string) string {
	how := ""
	if i.only != nil {
		only, _ := bson.MarshalExtJSON(i.only, false, false) // never fails: only is a constant
		how = fmt.Sprintf("partialFilterExpression: %s}", only)
		if i.name != "" {
			how = fmt.Sprintf("name: %q, %s", i.name, how)
		}
		how = ", {" + how
	}
	return fmt.Sprintf("%s.createIndex({%q: 1}%s)", inShell(database, collection), i.field, how)
}

func inShell(database, collection string) string {
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q)", database, collection)
}

func (c *Catalog) provide(
	ctx context.Context, from *mongo.Collection, want index, found []bson.Raw,
) (warning string, err error) {
	if slices.ContainsFunc(found, want.matches) {
		return "", nil
	}
	err = c.createIndex(ctx, from, want)
	if !hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict) {
		return "", err
	}
	for _, spec := range found {
		if keysAre(spec, want.field) {
			return fmt.Sprintf("index %q on %s.%s has the keys of a required index, but other "+
				"options: reads take longer with every name that was ever locked; drop it, and the next "+
				"start creates the right one",
				catalog.Printable(text(spec, "name"), 200), c.database, from.Name()), nil
		}
	}
	return "", nil // another process was faster
}

// matches reports whether spec describes this index. The name does not matter.
func (i index) matches(spec bson.Raw) bool {
	if !keysAre(spec, i.field) || spec.Lookup("collation").Type != 0 {
		return false
	}
	only, partial := spec.Lookup("partialFilterExpression").DocumentOK()
	if partial || i.only != nil {
		wanted, _ := bson.Marshal(i.only) // never fails: only is a constant
		return partial && bytes.Equal(only, wanted)
	}
	sparse, _ := spec.Lookup("sparse").BooleanOK()
	return !sparse
}

// keysAre reports whether the given field is the only key of an index, in ascending order.
func keysAre(spec bson.Raw, field string) bool {
	keys, _ := spec.Lookup("key").DocumentOK()
	elements, err := keys.Elements()
	if err != nil || len(elements) != 1 {
		return false
	}
	order, ok := elements[0].Value().AsInt64OK()
	return elements[0].Key() == field && ok && order == 1
}

func (c *Catalog) createIndex(ctx context.Context, from *mongo.Collection, want index) error {
	o := on(from.Name(), "createIndex", "create the index on "+want.field+" of", from.Name())
	how := options.Index()
	if want.name != "" {
		how.SetName(want.name)
	}
	if want.only != nil {
		how.SetPartialFilterExpression(want.only)
	}
	keys := bson.D{{Key: want.field, Value: int32(1)}}
	return c.run(ctx, o, func(ctx context.Context) error {
		_, err := from.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: how})
		return err
	})
}

// indexes lists the indexes of a collection. It returns nil if the collection does not exist.
func (c *Catalog) indexes(ctx context.Context, from *mongo.Collection) ([]bson.Raw, error) {
	o := on(from.Name(), "listIndexes", "list the indexes of", from.Name())
	var found []bson.Raw
	open := func(ctx context.Context) (*mongo.Cursor, error) { return from.Indexes().List(ctx) }
	err := c.each(ctx, o, open, func(spec bson.Raw) bool {
		found = append(found, slices.Clone(spec))
		return true
	})
	if hasCode(err, codeNamespaceNotFound) {
		return nil, nil
	}
	return found, err
}

// expiring returns a warning for each index that deletes documents by their age.
func (c *Catalog) expiring(from *mongo.Collection, found []bson.Raw) []string {
	var warnings []string
	for _, spec := range found {
		if spec.Lookup("expireAfterSeconds").Type == 0 {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("index %q on %s.%s deletes documents by their "+
			"age, and with them the locks of living processes; drop it",
			catalog.Printable(text(spec, "name"), 200), c.database, from.Name()))
	}
	return warnings
}
