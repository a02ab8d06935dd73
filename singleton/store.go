package singleton

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The names of the collections.
const (
	// SettingsCollection contains one settings document for each name. Operators write these
	// documents. They are not in config.settings, because MongoDB 7.0 and later refuse them there.
	SettingsCollection = "distlock_settings"
	// RecordsCollection contains one record for each name. The holder writes the record.
	RecordsCollection = "singletons"
)

// A Store stores the settings and the records of loops and schedules. [NewStore] returns a store in
// MongoDB, and [NewMemoryStore] returns a store for tests. Both stores pass the tests of package
// singletontest. A Store is safe for concurrent use.
type Store interface {
	// Settings returns the settings documents of the given names. If a name has no document, the
	// result does not contain the name.
	Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error)
	// Change applies c to a record and returns the changed document. If the record has a larger fence
	// than c.Fence, Change returns [ErrStale]. If c.Rev is not zero, and the record has another
	// revision or does not exist, Change returns [ErrChanged]. If the record's fence is not a number,
	// Change returns a *MalformedError. After these errors the record is unchanged. After any other
	// error the record may have changed.
	Change(ctx context.Context, c Change) (bson.Raw, error)
	// Ask adds one to the field "asks" of the record, if the record has the revision rev. The revision
	// stays the same. If the record has another revision or does not exist, Ask returns [ErrChanged]
	// and changes nothing. After any other error the record may have changed.
	Ask(ctx context.Context, name string, rev int64) error
	// Records returns all records, sorted by name.
	Records(ctx context.Context) ([]bson.Raw, error)
}

// A Change is an update of one record by the holder. It sets the field "fence" to Fence and the
// field "seen" to the server's time, and adds one to the field "rev".
type Change struct {
	Name  string
	Fence int64 // the fence of the holder; a record with a larger fence stays unchanged
	// Rev is the revision that the record must have. If Rev is zero, any revision matches, and a
	// missing record is created.
	Rev   int64
	Set   bson.D   // fields to set
	Dates []string // fields to set to the server's time
}
