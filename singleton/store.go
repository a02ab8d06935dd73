package singleton

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The collections, inside the database of the store.
const (
	// SettingsCollection holds the settings that operators write, a document for each name. It is
	// not config.settings, where the schema of MongoDB 7.0 and later refuses such documents.
	SettingsCollection = "distlock_settings"
	// RecordsCollection holds the records of rounds, a document for each name, written by the holder.
	RecordsCollection = "singletons"
)

// A Store keeps the settings and the records. [NewStore] returns a store in MongoDB, and
// [NewMemoryStore] returns a store for tests. Both pass the tests of package singletontest. A Store
// is safe for concurrent use.
type Store interface {
	// Settings returns the documents of settings with these names. It leaves out missing documents.
	Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error)
	// Change makes one change of a record and returns the document after it. Errors: [ErrStale]
	// when the record has a larger fence than c.Fence; [ErrChanged] when c.Rev is set and the
	// record has another revision or does not exist; a *MalformedError if the record's fence is not
	// a number. With these errors the record is unchanged. After any other error the record may
	// have changed.
	Change(ctx context.Context, c Change) (bson.Raw, error)
	// Ask raises the field "asks" of a record by one if the record has revision rev. It does not
	// change the revision. It returns [ErrChanged], and changes nothing, when the record has
	// another revision or does not exist. After any other error the record may have changed.
	Ask(ctx context.Context, name string, rev int64) error
	// Records returns all records, in the order of names.
	Records(ctx context.Context) ([]bson.Raw, error)
}

// A Change is an update of the record of a name by its holder. It writes Fence into the field
// "fence", raises "rev", and makes the server write its clock into "seen".
type Change struct {
	Name  string
	Fence int64 // the holder's fence; a record with a larger fence is not changed
	// Rev is the revision that the record must have. Zero matches every revision, and creates a
	// missing record.
	Rev   int64
	Set   bson.D   // fields to set
	Dates []string // fields that get the server's clock
}
