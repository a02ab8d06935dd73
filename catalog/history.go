package catalog

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// HistoryCollection holds what happened to the locks, beside them. Nothing of a lock depends on it.
const HistoryCollection = "lockhistory"

// History is the store of what happened. Only the first entry makes the collection.
type History interface {
	// PrepareHistory creates the indexes: one by time that lets the server delete entries older
	// than keep, and one by lock and time. It is safe to run in a hundred processes at once and
	// returns what an operator should know, such as an index with another age, which stays.
	PrepareHistory(ctx context.Context, keep time.Duration) (warnings []string, err error)

	// AppendHistory writes entries, in one command for each thousand. One whose ID is there already
	// is left alone, so that a batch of unknown outcome may be written again. Errors:
	// ErrUnknownOutcome, after which some may be there, *PrivilegeError, ErrUnavailable.
	AppendHistory(ctx context.Context, entries []HistoryEntry) error

	// PruneHistory deletes the entries that happened before that instant, and the oldest of more than
	// most, which is 1 at least, as the server counts them, and returns how many.
	PruneHistory(ctx context.Context, before time.Time, most int) (int, error)

	// ReadHistory yields entries, newest first. One that cannot be understood is yielded as a
	// *MalformedError and the listing goes on; any other error ends it.
	ReadHistory(ctx context.Context, q HistoryQuery) HistorySeq
}

// A HistorySeq is a listing of entries.
type HistorySeq = iter.Seq2[HistoryEntry, error]

// A HistoryQuery says which entries are wanted. The zero value means all of them.
type HistoryQuery struct {
	Name  string    // of the lock; empty for all locks
	Since time.Time // the server's clock; zero for ever
	Limit int       // the most entries; 0 for no limit
}

// A HistoryEntry is a document of the collection lockhistory, understood. Fields that do not apply
// are zero, and not written.
type HistoryEntry struct {
	ID   bson.ObjectID
	At   time.Time // when it happened, by the server's clock as the process knew it
	Kind string    // what happened, in words
	Session
	Process  string // who it happened to, or who did it
	Previous string // the process that lost the lock, or its place, by it
	Fence    int64
	Mode     Mode
	Label    string
	Why      string // the reason that the holder, or an operator, gave
	Rule     string // the takeover rule
	Evidence string // on which it decided
	Cause    string // of a loss
	Waited   time.Duration
	Held     time.Duration
	Missed   int64 // how many events before it were not written
}

// Document is e as it is stored.
func (e HistoryEntry) Document() bson.D {
	d := bson.D{
		{Key: "_id", Value: e.ID},
		{Key: "at", Value: bson.NewDateTimeFromTime(e.At)},
		{Key: "kind", Value: e.Kind},
	}
	text := func(field, value string) {
		if value != "" {
			d = append(d, bson.E{Key: field, Value: value})
		}
	}
	number := func(field string, n int64) {
		if n != 0 {
			d = append(d, bson.E{Key: field, Value: n})
		}
	}
	text("name", e.Name)
	if !e.TS.IsZero() {
		d = append(d, bson.E{Key: "ts", Value: e.TS})
	}
	text("process", e.Process)
	text("previous", e.Previous)
	number("fence", e.Fence)
	text("mode", string(e.Mode))
	text("label", e.Label)
	text("why", e.Why)
	text("rule", e.Rule)
	text("evidence", e.Evidence)
	text("cause", e.Cause)
	number("waitedMS", e.Waited.Milliseconds())
	number("heldMS", e.Held.Milliseconds())
	number("missed", e.Missed)
	return d
}

// ParseHistory understands a document of lockhistory. at must be a Date and kind a text; whatever
// else is not as we write it is left out.
func ParseHistory(raw bson.Raw) (HistoryEntry, *MalformedError) {
	var e HistoryEntry
	if raw.Validate() != nil {
		return e, &MalformedError{HistoryCollection, "", "_id", "cannot be read: the document is damaged"}
	}
	doc := fieldsOf(raw)
	id := doc.lookup("_id")
	e.ID, _ = id.ObjectIDOK()
	fail := func(field, must string) (HistoryEntry, *MalformedError) {
		return HistoryEntry{}, &MalformedError{HistoryCollection, id.String(), field,
			"must be " + must + ", not " + describe(doc.lookup(field))}
	}
	if e.At = date(doc.lookup("at")); e.At.IsZero() {
		return fail("at", "a Date")
	}
	kind, ok := doc.lookup("kind").StringValueOK()
	if !ok {
		return fail("kind", "a string")
	}
	text := func(field string) string {
		s, _ := doc.lookup(field).StringValueOK()
		return s
	}
	number := func(field string) int64 {
		n, _ := integral(doc.lookup(field))
		return max(0, n)
	}
	span := func(field string) time.Duration {
		return time.Duration(min(number(field), maxSpan.Milliseconds())) * time.Millisecond
	}
	e.Kind, e.Name, e.Process, e.Previous = kind, text("name"), text("process"), text("previous")
	e.TS, _ = doc.lookup("ts").ObjectIDOK()
	e.Mode, e.Label, e.Why = Mode(text("mode")), text("label"), text("why")
	e.Rule, e.Evidence, e.Cause = text("rule"), text("evidence"), text("cause")
	e.Fence, e.Missed = number("fence"), number("missed")
	e.Waited, e.Held = span("waitedMS"), span("heldMS")
	return e, nil
}

// maxSpan bounds how long a lock was waited for, or held, according to a document: a hundred years.
const maxSpan = 100 * 365 * 24 * time.Hour
