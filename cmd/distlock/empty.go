package main

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
)

// maxSearched limits the search for other databases with locks: a server with more is not searched.
const maxSearched = 50

// void explains that the database has no locks: an operator may have named the wrong database. It
// returns never = true only if the database never had locks and the user may list its collections.
func (s *store) void(ctx context.Context) (text string, never bool) {
	ctx, cancel := context.WithTimeout(ctx, mongocatalog.DefaultCommandTimeout)
	defer cancel()
	has, err := keepsLocks(ctx, s.client, s.database)
	if err != nil || has {
		return fmt.Sprintf("database %q has no locks", s.database), false
	}
	s.never = true
	text = fmt.Sprintf("database %q has no collection %s: nothing was ever locked there", s.database,
		catalog.LocksCollection)
	if others := s.others(ctx); len(others) > 0 {
		text += "; databases here that have one: " + strings.Join(others, ", ")
	}
	return text, true
}

// The method nothing returns text, or the text of void if the database never had locks.
func (s *store) nothing(ctx context.Context, text string) string {
	if why, never := s.void(ctx); never {
		return why
	}
	return text
}

// others returns the other databases that have locks, if the user may list them.
func (s *store) others(ctx context.Context) []string {
	names, err := s.client.ListDatabaseNames(ctx, bson.D{})
	if err != nil || len(names) > maxSearched {
		return nil
	}
	var found []string
	for _, name := range names {
		if name == s.database {
			continue
		}
		if has, err := keepsLocks(ctx, s.client, name); err == nil && has {
			found = append(found, catalog.Printable(name, 100))
		}
	}
	return found
}

func keepsLocks(ctx context.Context, client *mongo.Client, database string) (bool, error) {
	names, err := client.Database(database, options.Database().SetReadPreference(readpref.Primary())).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: catalog.LocksCollection}})
	return len(names) > 0, err
}

// absent returns the error for a lock that does not exist, with the possible cause.
func (s *store) absent(ctx context.Context, name string) error {
	err := fmt.Errorf("there is no lock %s in database %q", named(name), s.database)
	if text, never := s.void(ctx); never {
		err = fmt.Errorf("there is no lock %s: %s", named(name), text)
	}
	return err
}
