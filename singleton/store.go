package singleton

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The collections, inside the database of the store.
const (
	// SettingsCollection holds the settings that operators write, a document for each name. It is not
	// config.settings, where the schema of MongoDB 7.0 and later refuses such documents.
	SettingsCollection = "distlock_settings"
	// RecordsCollection holds the records of rounds, a document for each name, written by the holder.
	RecordsCollection = "singletons"
)

// A Store keeps the settings and the records. [NewStore] is that of a MongoDB and [NewMemoryStore]
// one for tests; package singletontest is the suite that both pass. Safe for concurrent use.
type Store interface {
	// Settings returns the documents of settings with these names, as far as they exist.
	Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error)
	// Change makes one change of a record and returns the document after it. Errors: [ErrStale] when
	// the record carries a larger fence than c.Fence; [ErrChanged] when c.Rev is given and the record
	// has another revision or does not exist; a *MalformedError if its fence is no number. With these
	// errors the record is unchanged. After any other error it may have changed.
	Change(ctx context.Context, c Change) (bson.Raw, error)
	// Ask raises the field asks of a record by one if the record has this revision, which stays as it
	// is. Errors: [ErrChanged] when it has another one, or there is none; nothing was changed then.
	// After any other error it may have been.
	Ask(ctx context.Context, name string, rev int64) error
	// Records returns all records, in the order of names.
	Records(ctx context.Context) ([]bson.Raw, error)
}

// A Change is an update of the record of a name by its holder. It leaves Fence in the field fence,
// raises rev, and has the server write its clock into the field seen.
type Change struct {
	Name  string
	Fence int64 // the holder's; a record with a larger one is not changed
	// Rev is the revision that the record must have. Zero: any, and a record that is missing is made.
	Rev   int64
	Set   bson.D   // fields
	Dates []string // fields that get the server's clock
}
