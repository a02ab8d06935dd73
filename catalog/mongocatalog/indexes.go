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

// Codes of createIndexes when the keys have an index of another name or with other options, and of
// the others.
const (
	codeIndexOptionsConflict    = 85
	codeIndexKeySpecsConflict   = 86
	codeNamespaceNotFound       = 26
	codeIndexNotFound           = 27
	codeCommandNotSupportedView = 166
)

// An index is one that our queries need. Lock documents are never deleted, and a free one keeps its
// last holder: so the indexes on locks hold only those that somebody holds or waits for, and what a
// query reads does not grow with the names that were ever locked.
//
// What they cost: an acquisition writes one entry and a release removes it. Another is written for a
// process that enters a line, or shares, and removed when it leaves. A grant to the next in line does
// both.
type index struct {
	field  string
	only   bson.D // the documents that are in it; nil for all
	sparse bool   // documents without the field are not in it
}

// indexesOn are the indexes that a collection should have. A FerretDB v1 knows neither partial nor
// sparse ones, and reads everything anyway.
func indexesOn(collection string, s catalog.Server) []index {
	switch {
	case collection == catalog.PingsCollection:
		return []index{{field: "ping"}}
	case s.Kind == catalog.FerretDB:
		return []index{{field: "process"}, {field: "sharers.process"}, {field: "waiters.process"}}
	}
	return []index{
		{field: "process", only: bson.D{{Key: "state", Value: positive}}},
		{field: "sharers.process", sparse: true},
		{field: "waiters.process", sparse: true},
	}
}

// Prepare is documented in [catalog.Pings]. Two commands when everything is there, and one for each
// index that is not. It creates what it can, and returns the warnings even when something failed.
//
// An index on process that an earlier version of this package made, which holds the free locks too, is
// dropped and made anew. One with the same keys that somebody else made stays, with a warning where it
// is in the way.
func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	var warnings []string
	var errs []error
	for _, on := range []*mongo.Collection{c.locks, c.pings} {
		found, err := c.indexes(ctx, on)
		errs = append(errs, err)
		warnings = append(warnings, c.expiring(on, found)...)
		for _, want := range indexesOn(on.Name(), s) {
			warning, err := c.provide(ctx, on, want, found)
			errs = append(errs, err)
			if warning != "" {
				warnings = append(warnings, warning)
			}
		}
	}
	return warnings, errors.Join(errs...)
}

// MissingIndexes returns, for each index that Prepare would create, the command that creates it, for the shell. It
// changes nothing. Three commands at most; those of a collection that is not there are not missing.
func (c *Catalog) MissingIndexes(ctx context.Context) ([]string, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for indexes: %w", err)
	}
	var commands []string
	for _, on := range []*mongo.Collection{c.locks, c.pings} {
		found, err := c.indexes(ctx, on)
		if err != nil {
			return commands, err
		}
		if len(found) == 0 { // each collection has one on _id
			continue
		}
		for _, want := range indexesOn(on.Name(), s) {
			if !slices.ContainsFunc(found, want.servedBy) {
				commands = append(commands, want.creating(c.database, on.Name()))
			}
		}
	}
	return commands, nil
}

// creating is the command that creates an index, for the shell.
func (i index) creating(database, collection string) string {
	how := ""
	switch {
	case i.only != nil:
		only, _ := bson.MarshalExtJSON(i.only, false, false) // it is a constant
		how = fmt.Sprintf(", {partialFilterExpression: %s}", only)
	case i.sparse:
		how = ", {sparse: true}"
	}
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q).createIndex({%q: 1}%s)", database, collection, i.field,
		how)
}

// provide creates an index unless one of those found serves.
func (c *Catalog) provide(ctx context.Context, on *mongo.Collection, want index, found []bson.Raw) (
	warning string, err error,
) {
	if slices.ContainsFunc(found, want.servedBy) {
		return "", nil
	}
	if slices.ContainsFunc(found, want.outdated) {
		if err := c.dropIndex(ctx, on, want.field+"_1"); err != nil {
			return "", err
		}
	}
	err = c.createIndex(ctx, on, want)
	if !hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict) {
		return "", err
	}
	for _, spec := range found {
		if name, _ := spec.Lookup("name").StringValueOK(); keysAre(spec, want.field) && !want.outdated(spec) {
			return fmt.Sprintf("index %q on %s.%s has the keys of one that is needed, but other "+
				"options: reading it takes longer with every name that was ever locked; drop it, and "+
				"the right one is made at the next start", catalog.Printable(name, 200), c.database,
				on.Name()), nil
		}
	}
	return "", nil // another process was faster
}

// servedBy reports whether an index that is there serves.
func (i index) servedBy(spec bson.Raw) bool {
	if !keysAre(spec, i.field) || spec.Lookup("collation").Type != 0 {
		return false
	}
	sparse, _ := spec.Lookup("sparse").BooleanOK()
	only, partial := spec.Lookup("partialFilterExpression").DocumentOK()
	if partial || i.only != nil {
		wanted, _ := bson.Marshal(i.only) // it is a constant
		return partial && bytes.Equal(only, wanted)
	}
	return sparse == i.sparse
}

// outdated reports whether an index is one that an earlier version made.
func (i index) outdated(spec bson.Raw) bool {
	name, _ := spec.Lookup("name").StringValueOK()
	return i.only != nil && name == i.field+"_1" && keysAre(spec, i.field) && plain(spec)
}

// keysAre reports whether an index has this one key, ascending.
func keysAre(spec bson.Raw, field string) bool {
	keys, _ := spec.Lookup("key").DocumentOK()
	elements, err := keys.Elements()
	if err != nil || len(elements) != 1 {
		return false
	}
	order, ok := elements[0].Value().AsInt64OK()
	return elements[0].Key() == field && ok && order == 1
}

// plain reports whether an index has no options.
func plain(spec bson.Raw) bool {
	elements, err := spec.Elements()
	return err == nil && !slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		return !slices.Contains([]string{"v", "key", "name", "ns", "background"}, e.Key())
	})
}

func (c *Catalog) createIndex(ctx context.Context, on *mongo.Collection, want index) error {
	o := operation{
		verb: "create the index on " + want.field + " of", name: on.Name(), quoted: true,
		database: c.database, collection: on.Name(), actions: "createIndex",
	}
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return o.wrap(err)
	}
	defer cancel()
	how := options.Index()
	if want.sparse {
		how.SetSparse(true)
	}
	if want.only != nil {
		how.SetPartialFilterExpression(want.only)
	}
	keys := bson.D{{Key: want.field, Value: int32(1)}}
	_, err = on.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: how})
	if err != nil {
		return o.failed(err)
	}
	return nil
}

// dropIndex drops an index of ours. It is no error when another process was faster.
func (c *Catalog) dropIndex(ctx context.Context, on *mongo.Collection, name string) error {
	o := operation{
		verb: "drop the outdated index " + name + " of", name: on.Name(), quoted: true,
		database: c.database, collection: on.Name(), actions: "dropIndex",
	}
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return o.wrap(err)
	}
	defer cancel()
	err = on.Indexes().DropOne(ctx, name)
	if err != nil && !hasCode(err, codeIndexNotFound) {
		return o.failed(err)
	}
	return nil
}

// indexes lists the indexes of a collection; none when there is no such collection.
func (c *Catalog) indexes(ctx context.Context, on *mongo.Collection) ([]bson.Raw, error) {
	o := operation{
		verb: "list the indexes of", name: on.Name(), quoted: true,
		database: c.database, collection: on.Name(), actions: "listIndexes",
	}
	var found []bson.Raw
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return on.Indexes().List(ctx)
	})
	defer r.close(ctx)
	for r.next(ctx) {
		found = append(found, slices.Clone(r.row()))
	}
	if hasCode(r.err, codeNamespaceNotFound) {
		return nil, nil
	}
	return found, r.err
}

// expiring warns of indexes that delete documents by their age.
func (c *Catalog) expiring(on *mongo.Collection, found []bson.Raw) []string {
	var warnings []string
	for _, spec := range found {
		if spec.Lookup("expireAfterSeconds").Type == 0 {
			continue
		}
		name, _ := spec.Lookup("name").StringValueOK()
		warnings = append(warnings, fmt.Sprintf("index %q on %s.%s deletes documents by their "+
			"age, and with them the locks of living processes; drop it",
			catalog.Printable(name, 200), c.database, on.Name()))
	}
	return warnings
}
