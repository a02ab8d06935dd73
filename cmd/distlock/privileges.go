package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/internal/role"
)

// primary returns a database whose reads go to the primary, regardless of the read preference in
// the connection string.
func (s *store) primary(database string) *mongo.Database {
	return s.client.Database(database, options.Database().SetReadPreference(readpref.Primary()))
}

// missingIndexes adds the missing indexes of the locks to the report.
func (x *examination) missingIndexes(ctx context.Context) error {
	missing := func() ([]string, error) { return x.catalog.MissingIndexes(ctx) }
	return x.indexes("the locks", missing, func() error {
		_, err := x.catalog.Prepare(ctx)
		return err
	})
}

// indexes adds the missing indexes to the report. With --create-indexes, it first creates them, and
// also adds the created indexes to the report.
func (x *examination) indexes(what string, missing func() ([]string, error),
	create func() error) error {
	left, err := missing()
	if before := left; len(before) > 0 && err == nil && x.createIndexes {
		failed := create()
		if left, err = missing(); err == nil {
			isLeft := func(command string) bool { return slices.Contains(left, command) }
			x.CreatedIndexes = append(x.CreatedIndexes, slices.DeleteFunc(before, isLeft)...)
		}
		err = errors.Join(failed, err)
	}
	for _, command := range left {
		x.MissingIndexes = append(x.MissingIndexes, command)
		x.warn("an index for %s is missing, so reads become "+
			"slower with every document; create it with --create-indexes, or with: %s", what, command)
	}
	return err
}

func (x *examination) queueIndexes(ctx context.Context) error {
	if x.queue != "" {
		rows := x.st.primary(x.database).Collection(x.queue)
		return x.indexesOf(ctx, rows, claim.Config{Field: x.field, Due: x.due})
	}
	known, err := x.st.queues(ctx)
	if err != nil {
		return fmt.Errorf("find queues in %s.%s: %w", x.database, catalog.LocksCollection, err)
	}
	var errs []error
	for _, q := range known[:min(len(known), maxQueues)] {
		rows := q.Collection(x.st.client)
		names, err := x.st.primary(rows.Database().Name()).ListCollectionNames(ctx,
			bson.D{{Key: "name", Value: rows.Name()}})
		if err == nil && len(names) > 0 { // otherwise the rows of the queue are on another server
			err = x.indexesOf(ctx, rows, q.Config)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (x *examination) indexesOf(ctx context.Context, rows *mongo.Collection,
	cfg claim.Config) error {
	admin, err := claim.NewAdmin(rows, cfg)
	if err != nil {
		return err
	}
	return x.indexes("the queue "+named(rows.Database().Name()+"."+rows.Name()),
		func() ([]string, error) { return admin.MissingIndexes(ctx) },
		func() error { return admin.CreateIndexes(ctx) })
}

func (x *examination) expiringIndexes(ctx context.Context) error {
	warnings, err := x.catalog.ExpiringIndexes(ctx)
	x.Warnings = append(x.Warnings, warnings...)
	return err
}

const roleName = "distlock"

// printRole writes the command that creates the role, for the MongoDB shell. With --json, it writes
// only the document of the command.
func (d *doctor) printRole(w io.Writer) error {
	command := role.Command(roleName, d.database, role.Of(d.queue, d.features...))
	text, err := bson.MarshalExtJSONIndent(command, false, false, "", "  ")
	if err != nil {
		return err
	}
	if d.json {
		_, err = fmt.Fprintf(w, "%s\n", safe(string(text)))
		return err
	}
	var words []string
	for _, f := range d.features {
		words = append(words, string(f))
	}
	_, err = fmt.Fprintf(w, "// least privileges for %s in database %s; for the shell, as a user "+
		"who may create roles\ndb.getSiblingDB(\"admin\").runCommand(%s)\n", strings.Join(words, ", "),
		named(d.database), safe(string(text)))
	return err
}

type missingPrivilege struct {
	Collection string   `json:"collection"` // with the database
	Actions    []string `json:"actions"`
	Features   []string `json:"features"` // the features that need the privilege
}

// privileges reports the actions that the features need, but that the user may not perform. It
// tries each action with a command that changes no data.
func (x *examination) privileges(ctx context.Context) error {
	if x.Kind == string(catalog.FerretDB) {
		return nil // it has no users, and would create a collection for each command
	}
	db := x.st.primary(x.database)
	scratch := "distlock_check_" + bson.NewObjectID().Hex()
	for _, p := range role.Of(x.queue, x.features...) {
		on := cmp.Or(p.Collection, scratch)
		var missing []string
		for _, action := range p.Actions {
			if action == "changeStream" && slices.Contains(missing, "find") {
				continue // a change stream also needs find, so the attempt would not show more
			}
			denied, err := tryAction(ctx, db, on, scratch, action)
			if err != nil {
				return fmt.Errorf("check whether the user may %s on %s.%s: %w", action, x.database, on, err)
			}
			if denied {
				missing = append(missing, action)
			}
		}
		if missing == nil {
			continue
		}
		l := missingPrivilege{x.database + "." + cmp.Or(p.Collection, "*"), missing, x.featuresNeeding(p.Collection, missing)}
		x.MissingPrivileges = append(x.MissingPrivileges, l)
		x.warn("the user of this connection lacks %s on %s, "+
			"for %s; \"distlock doctor --role\" prints a role that has it", strings.Join(missing, ", "),
			named(l.Collection), strings.Join(l.Features, ", "))
	}
	return nil
}

// featuresNeeding returns the features that need one of the actions on a collection.
func (x *examination) featuresNeeding(collection string, actions []string) (found []string) {
	for _, f := range x.features {
		for _, p := range role.Of(x.queue, f) {
			isMissing := func(action string) bool { return slices.Contains(actions, action) }
			if p.Collection == collection && slices.ContainsFunc(p.Actions, isMissing) {
				found = append(found, string(f))
			}
		}
	}
	return found
}

const codeUnauthorized = 13

// actionCommands contains a command for each action. COLL stands for the collection, and NEW for a
// new name. No command changes data, because a write command matches nothing or is invalid. The
// invalid commands have an array as _id or an unknown kind of index. A server checks privileges
// before it refuses an invalid command.
var actionCommands = map[string]string{
	"find":   `{"find": "COLL", "filter": {"_id": "NEW"}, "limit": 1}`,
	"insert": `{"insert": "COLL", "documents": [{"_id": ["NEW"]}]}`,
	"update": `{"update": "COLL", "updates": [
		{"q": {"_id": "NEW"}, "u": {"$set": {"x": 1}}}]}`,
	"remove":         `{"delete": "COLL", "deletes": [{"q": {"_id": "NEW"}, "limit": 1}]}`,
	"createIndex":    `{"createIndexes": "COLL", "indexes": [{"key": {"x": "none"}, "name": "NEW"}]}`,
	"listIndexes":    `{"listIndexes": "COLL"}`,
	"dropCollection": `{"drop": "NEW"}`,
}

// tryAction reports whether the user lacks the privilege for an action on a collection. It ignores
// server errors with another cause.
func tryAction(ctx context.Context, db *mongo.Database, on, scratch, action string) (denied bool,
	err error) {
	if action == "changeStream" {
		stream, err := db.Collection(on).Watch(ctx, bson.A{})
		if err == nil {
			err = stream.Close(ctx)
		}
		return isDenied(ctx, err)
	}
	quoted, _ := json.Marshal(on) // a string has no marshaling errors
	text := strings.NewReplacer(`"COLL"`, string(quoted), "NEW", scratch).Replace(actionCommands[action])
	var command bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), true, &command); err != nil {
		return false, fmt.Errorf("there is no test of the action %q", action)
	}
	return isDenied(ctx, db.RunCommand(ctx, command).Err())
}

// isDenied reports whether err is the server's error for a missing privilege. If the server did not
// answer, the second result is the error.
func isDenied(ctx context.Context, err error) (denied bool, failed error) {
	var server mongo.ServerError
	switch {
	case errors.As(err, &server):
		return server.HasErrorCode(codeUnauthorized), nil
	case err != nil && ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, err
}
