package main

import (
	"cmp"
	"context"
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

// A grant is a privilege of the user. Its Collection is nil if the resource is no collection.
type grant struct {
	Resource struct {
		DB          string  `bson:"db"`
		Collection  *string `bson:"collection"`
		AnyResource bool    `bson:"anyResource"`
	} `bson:"resource"`
	Actions []string `bson:"actions"`
}

// allows reports whether the grant allows an action on a collection. A grant for all databases does
// not include the database config.
func (g grant) allows(action, database, collection string) bool {
	r := g.Resource
	return slices.Contains(g.Actions, action) && (r.AnyResource || r.Collection != nil &&
		(r.DB == database || r.DB == "" && database != mongosDatabase) &&
		(*r.Collection == "" || *r.Collection == collection))
}

// privileges reports the actions that the features need, but that the user may not perform. A
// server without users allows every action.
func (x *examination) privileges(ctx context.Context) error {
	if x.Kind == string(catalog.FerretDB) {
		return nil // the server has no users
	}
	var reply struct {
		AuthInfo struct {
			Users  []bson.Raw `bson:"authenticatedUsers"`
			Grants []grant    `bson:"authenticatedUserPrivileges"`
		} `bson:"authInfo"`
	}
	err := x.st.primary("admin").RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1},
		{Key: "showPrivileges", Value: true}}).Decode(&reply)
	if err != nil {
		return fmt.Errorf("read the privileges of the user: %w", err)
	}
	if len(reply.AuthInfo.Users) == 0 {
		return nil
	}
	for _, p := range role.Of(x.queue, x.features...) {
		missing := slices.DeleteFunc(slices.Clone(p.Actions), func(action string) bool {
			return slices.ContainsFunc(reply.AuthInfo.Grants, func(g grant) bool {
				return g.allows(action, x.database, p.Collection)
			})
		})
		if len(missing) == 0 {
			continue
		}
		l := missingPrivilege{x.database + "." + cmp.Or(p.Collection, "*"), missing,
			x.featuresNeeding(p.Collection, missing)}
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
