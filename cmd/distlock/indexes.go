package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// queueFlags name the queue of package claim whose indexes doctor checks.
type queueFlags struct{ collection, field, due string }

func (q *queueFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&q.collection, "queue", "", "a `collection` of the database whose rows "+
		"package claim works on: check its\nindexes; without, at those of the queues that have "+
		"taken locks here")
	f.StringVar(&q.field, "field", "claim",
		"the `name` of the field with the claim of a row, with --queue")
	f.StringVar(&q.due, "due", "", "the `field` of the queue's Config.Due, with --queue")
}

func (q *queueFlags) accept() error {
	if q.collection == "" && (q.due != "" || q.field != "claim") {
		return errors.New("--field and --due are those of a queue: give its collection with --queue")
	}
	if strings.ContainsAny(q.collection, "$\x00") {
		return fmt.Errorf("--queue: %s is no name of a collection", named(q.collection))
	}
	return nil
}

// primary returns a database that is read on the primary. It ignores the read preference of the
// connection string.
func (s *store) primary(database string) *mongo.Database {
	return s.client.Database(database, options.Database().SetReadPreference(readpref.Primary()))
}

// missingIndexes records the missing indexes of the locks, and warns of superfluous ones.
func (x *examination) missingIndexes(ctx context.Context) error {
	missing := func() ([]string, error) { return x.catalog.MissingIndexes(ctx) }
	indexErr := x.indexes("the locks", missing, func() error {
		_, err := x.catalog.Prepare(ctx)
		return err
	})
	commands, err := x.catalog.SuperfluousIndexes(ctx)
	for _, command := range commands {
		x.warn("an index of an earlier version of distlock is written at each change and serves nothing "+
			"here; when no process of that version is left, drop it: %s", command)
	}
	return errors.Join(indexErr, err)
}

// indexes records the missing indexes. With --create-indexes it creates them and records which it
// has created.
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
		r.warn("an index for %s is missing, so reading takes "+
			"longer with every document; create it with --create-indexes, or by: %s", what, command)
	}
}

func (x *examination) queueIndexes(ctx context.Context) error {
	if q := x.queues; q.collection != "" {
		return x.queue(ctx, x.database, q.collection, claim.Config{Field: q.field, Due: q.due})
	}
	found, err := knownQueues(ctx, x.st.primary(x.database).Collection(catalog.LocksCollection))
	if err != nil {
		return fmt.Errorf("find queues in %s.%s: %w", x.database, catalog.LocksCollection, err)
	}
	var errs []error
	for _, namespace := range found {
		database, collection, _ := strings.Cut(namespace, ".")
		names, err := x.st.primary(database).ListCollectionNames(ctx,
			bson.D{{Key: "name", Value: collection}})
		if err == nil && len(names) > 0 { // otherwise the rows of the queue are on another server
			err = x.queue(ctx, database, collection, claim.Config{})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (x *examination) queue(ctx context.Context, database, collection string,
	cfg claim.Config) error {
	admin, err := claim.NewAdmin(x.st.primary(database).Collection(collection), cfg)
	if err != nil {
		return err
	}
	return x.indexes("the queue "+named(database+"."+collection),
		func() ([]string, error) { return admin.MissingIndexes(ctx) },
		func() error { return admin.CreateIndexes(ctx) })
}

// maxCheckedQueues bounds the number of queues to check.
const maxCheckedQueues = 50

// knownQueues returns the namespaces of the queues with a lock for a slot (see docs/claim.md).
func knownQueues(ctx context.Context, locks *mongo.Collection) ([]string, error) {
	const prefix, end = "claim:", "claim;" // the character after the colon ends the range
	cursor, err := locks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: prefix}, {Key: "$lt", Value: end},
	}}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var found []string
	for cursor.Next(ctx) {
		name, _ := cursor.Current.Lookup("_id").StringValueOK()
		database, collection, is := words.Queue(name)
		namespace := database + "." + collection
		if is && !slices.Contains(found, namespace) && len(found) < maxCheckedQueues {
			found = append(found, namespace)
		}
	}
	return found, errors.Join(cursor.Err(), cursor.Close(ctx))
}

const codeNamespaceNotFound = 26

// harmfulIndexes warns of indexes that delete documents by their age. It only reads.
func (x *examination) harmfulIndexes(ctx context.Context) error {
	db := x.st.primary(x.database)
	for _, name := range []string{catalog.LocksCollection, catalog.PingsCollection} {
		found, err := expiringIndexes(ctx, db.Collection(name))
		if err != nil {
			return fmt.Errorf("list the indexes of %s.%s: %w", x.database, name, err)
		}
		for _, index := range found {
			x.warn("index %q on %s.%s deletes documents by their age, and with them the locks of living "+
				"processes; drop it", catalog.Printable(index, 100), x.database, name)
		}
	}
	return nil
}

func expiringIndexes(ctx context.Context, on *mongo.Collection) ([]string, error) {
	cursor, err := on.Indexes().List(ctx)
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(codeNamespaceNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return expiringNames(ctx, cursor)
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
