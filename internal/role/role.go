// Package role lists the MongoDB privileges that each feature needs. They are the fewest privileges
// with which the feature works. Tests compare the list with the commands that are sent.
package role

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Feature is a use of the database for which a role grants privileges.
type Feature string

// The features that a role can allow.
const (
	Locks        Feature = "locks"        // try, hold, release and take over locks of every mode
	Lines        Feature = "lines"        // receive grants by a change stream
	Transactions Feature = "transactions" // write in a transaction only while a lock is held
	History      Feature = "history"      // record and read the events of locks
	Listings     Feature = "listings"     // list holders, waiters and history
	Breaking     Feature = "breaking"     // free a lock by force
	Pruning      Feature = "pruning"      // delete the documents of unused names
	Loops        Feature = "loops"        // run loops and schedules
	Claims       Feature = "claims"       // work on the rows of a collection
	Doctor       Feature = "doctor"       // run races and benchmarks on scratch collections
)

// Features returns all features.
func Features() []Feature {
	return []Feature{Locks, Lines, Transactions, History, Listings, Breaking, Pruning, Loops, Claims,
		Doctor}
}

// A Privilege is a list of actions on one collection of the database, or on all collections if
// Collection is empty.
type Privilege struct {
	Collection string
	Actions    []string
}

// The names of the collections, as in packages catalog and singleton. A test compares them.
const (
	locks    = "locks"
	pings    = "lockpings"
	history  = "lockhistory"
	settings = "distlock_settings" // of loops and queues
	records  = "singletons"
	every    = ""
)

// needs returns the privileges of one feature, without the privileges of the features that it
// depends on. The parameter rows is the name of the collection for the feature Claims.
func needs(f Feature, rows string) []Privilege {
	switch f {
	case Locks:
		return []Privilege{
			{locks, []string{"find", "insert", "update", "createIndex", "listIndexes"}},
			{pings, []string{"find", "insert", "update", "remove", "createIndex", "listIndexes"}},
		}
	case Lines:
		return []Privilege{{locks, []string{"find", "changeStream"}}}
	case Transactions:
		return []Privilege{{locks, []string{"find", "insert", "update"}}}
	case History:
		return []Privilege{{history, []string{"find", "insert", "createIndex"}}}
	case Listings:
		find := []string{"find"}
		return []Privilege{{locks, find}, {pings, find}, {history, find}, {records, find},
			{settings, find}}
	case Breaking:
		return []Privilege{{locks, []string{"find", "update"}}, {pings, []string{"find"}}}
	case Pruning:
		return []Privilege{{locks, []string{"find", "remove"}}}
	case Loops:
		return []Privilege{{settings, []string{"find"}}, {records, []string{"find", "insert", "update"}}}
	case Claims:
		return []Privilege{{rows, []string{"find", "insert", "update", "remove", "changeStream",
			"createIndex", "listIndexes"}}, {settings, []string{"find", "insert", "update", "remove"}}}
	case Doctor:
		return []Privilege{{every, []string{"find", "insert", "update", "remove", "dropCollection"}}}
	}
	return nil
}

// Of returns the privileges that the features need together. Each collection occurs once, and each
// action occurs once in its collection, in a fixed order. The parameter rows is the name of the
// collection for the feature Claims.
func Of(rows string, features ...Feature) []Privilege {
	var all []Privilege
	for _, f := range Features() {
		if !slices.Contains(features, f) {
			continue
		}
		for _, p := range needs(f, rows) {
			i := slices.IndexFunc(all, func(one Privilege) bool { return one.Collection == p.Collection })
			if i < 0 {
				all = append(all, Privilege{Collection: p.Collection})
				i = len(all) - 1
			}
			for _, action := range p.Actions {
				if !slices.Contains(all[i].Actions, action) {
					all[i].Actions = append(all[i].Actions, action)
				}
			}
		}
	}
	return all
}

// Parse parses a list of features, separated by commas.
func Parse(list string) ([]Feature, error) {
	var found []Feature
	for word := range strings.SplitSeq(list, ",") {
		f := Feature(strings.TrimSpace(word))
		if !slices.Contains(Features(), f) {
			return nil, fmt.Errorf("there is no feature %q; the features are %s", f, Names())
		}
		found = append(found, f)
	}
	return found, nil
}

// Names returns the names of all features, separated by commas.
func Names() string {
	var all []string
	for _, f := range Features() {
		all = append(all, string(f))
	}
	return strings.Join(all, ", ")
}

// Command returns the command createRole for a role that grants the privileges in one database.
func Command(name, database string, privileges []Privilege) bson.D {
	list := bson.A{}
	for _, p := range privileges {
		actions := bson.A{}
		for _, action := range p.Actions {
			actions = append(actions, action)
		}
		of := bson.D{{Key: "db", Value: database}, {Key: "collection", Value: p.Collection}}
		list = append(list, bson.D{{Key: "resource", Value: of}, {Key: "actions", Value: actions}})
	}
	return bson.D{{Key: "createRole", Value: name}, {Key: "privileges", Value: list},
		{Key: "roles", Value: bson.A{}}}
}
