package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/claim"
)

// primary returns a database whose reads go to the primary, regardless of the read preference in
// the connection string.
func (s *store) primary(database string) *mongo.Database {
	return s.client.Database(database, options.Database().SetReadPreference(readpref.Primary()))
}

// missingIndexes adds the missing indexes of the locks to the report, and warns of superfluous
// indexes.
func (x *examination) missingIndexes(ctx context.Context) error {
	missing := func() ([]string, error) { return x.catalog.MissingIndexes(ctx) }
	indexErr := x.indexes("the locks", missing, func() error {
		_, err := x.catalog.Prepare(ctx)
		return err
	})
	commands, err := x.catalog.SuperfluousIndexes(ctx)
	for _, command := range commands {
		x.warn("an index of an earlier version of distlock slows every write and is not used by this "+
			"version; when no process of the earlier version is left, drop it: %s", command)
	}
	return errors.Join(indexErr, err)
}

// indexes adds the missing indexes to the report. With --create-indexes, it first creates them, and
// also adds the created indexes to the report.
func (x *examination) indexes(what string, missing func() ([]string, error),
	create func() error) error {
	before, err := missing()
	if err != nil || len(before) == 0 || !x.createIndexes {
		x.addMissingIndexes(what, before)
		return err
	}
	failed := create()
	after, err := missing()
	if err == nil {
		for _, command := range before {
			if !slices.Contains(after, command) {
				x.CreatedIndexes = append(x.CreatedIndexes, command)
			}
		}
	}
	x.addMissingIndexes(what, after)
	return errors.Join(failed, err)
}

func (r *report) addMissingIndexes(what string, commands []string) {
	for _, command := range commands {
		r.MissingIndexes = append(r.MissingIndexes, command)
		r.warn("an index for %s is missing, so reads become "+
			"slower with every document; create it with --create-indexes, or with: %s", what, command)
	}
}

func (x *examination) queueIndexes(ctx context.Context) error {
	if x.queue != "" {
		return x.indexesOf(ctx, x.database, x.queue, claim.Config{Field: x.field, Due: x.due})
	}
	known, err := x.st.queues(ctx)
	if err != nil {
		return fmt.Errorf("find queues in %s.%s: %w", x.database, catalog.LocksCollection, err)
	}
	var errs []error
	for _, q := range known[:min(len(known), maxQueues)] {
		names, err := x.st.primary(q.Database).ListCollectionNames(ctx,
			bson.D{{Key: "name", Value: q.Collection}})
		if err == nil && len(names) > 0 { // otherwise the rows of the queue are on another server
			err = x.indexesOf(ctx, q.Database, q.Collection, claim.Config{})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (x *examination) indexesOf(ctx context.Context, database, collection string,
	cfg claim.Config) error {
	admin, err := claim.NewAdmin(x.st.primary(database).Collection(collection), cfg)
	if err != nil {
		return err
	}
	return x.indexes("the queue "+named(database+"."+collection),
		func() ([]string, error) { return admin.MissingIndexes(ctx) },
		func() error { return admin.CreateIndexes(ctx) })
}

// harmfulIndexes warns of indexes that delete documents by their age. It only reads.
func (x *examination) harmfulIndexes(ctx context.Context) error {
	db := x.st.primary(x.database)
	for _, name := range []string{catalog.LocksCollection, catalog.PingsCollection} {
		var found []string
		cursor, err := db.Collection(name).Indexes().List(ctx)
		if err == nil {
			found, err = expiringNames(ctx, cursor)
		}
		if err != nil {
			return fmt.Errorf("list the indexes of %s.%s: %w", x.database, name, err)
		}
		for _, index := range found {
			x.warn("index %q on %s.%s deletes documents by their age, even the locks of processes that "+
				"are alive; drop it", catalog.Printable(index, 100), x.database, name)
		}
	}
	return nil
}

func expiringNames(ctx context.Context, cursor *mongo.Cursor) ([]string, error) {
	var names []string
	for cursor.Next(ctx) {
		if cursor.Current.Lookup("expireAfterSeconds").Type == 0 {
			continue
		}
		name, _ := cursor.Current.Lookup("name").StringValueOK()
		names = append(names, name)
	}
	return names, errors.Join(cursor.Err(), cursor.Close(ctx))
}
