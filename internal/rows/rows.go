// Package rows stores the state of rows for package claim. The state is in one field of a user's
// documents, which the package changes by conditional writes. The only clock that the package reads
// is the server's.
package rows

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A State is the state of a row. A row without a state is ready.
type State string

// The states of a row.
const (
	Ready    State = "ready"
	Claimed  State = "claimed"
	Retrying State = "retrying" // waits until notBefore
	Dead     State = "dead"     // failed too often, or was discarded or cancelled
	Done     State = "done"
)

// SlotPrefix is the first part of the names of all slots.
const SlotPrefix = "claim:"

// DiedText is the error of an attempt whose process died. Cancelled is the error of a cancelled
// row.
const (
	DiedText  = "process died"
	Cancelled = "cancelled"
)

// A Mark is the parsed field Options.Field of a row. Elements that are absent in the document are
// zero.
type Mark struct {
	State     State
	Slot      string        // the name of the lock of the process that claimed the row
	SlotFence int64         // the fence of that lock
	Session   bson.ObjectID // the session of that lock
	Batch     bson.ObjectID // new for every claim
	Fence     int64         // rises with every claim of this row
	Attempts  int64         // counted claims, including the present one; at most Fence
	NotBefore time.Time
	Error     string
	Cancelled bool      // set by Cancel; the claim cannot end as Ready or Retrying
	Holds     string    // the name of Options.Key while the row holds its key
	Failures  []Failure // the last MostFailures failures
	DoneAt    time.Time
	DeadAt    time.Time
}

// A Claim contains the values that a claim writes into a row.
type Claim struct {
	Locks     string
	Slot      string
	SlotFence int64
	Session   bson.ObjectID
	Batch     bson.ObjectID
	At        time.Time // for people to read
}

// A Slot names the lock of a process that claims rows, and the database of that lock.
type Slot struct{ Locks, Name string }

// A Row is a document of the user, and its parsed field Options.Field.
type Row struct {
	ID   bson.RawValue
	Doc  bson.Raw
	Mark Mark
}

// An Ending is the end of a claim.
type Ending struct {
	ID       bson.RawValue
	Session  bson.ObjectID
	Batch    bson.ObjectID
	To       State     // Ready, Retrying, Dead or Done
	Attempts int64     // the number of counted attempts after the end of the claim
	At       time.Time // set for Done and Dead
	// NotBefore is set for Retrying. Error and Failures are set for Dead, and for Retrying if the
	// attempt counts. If Error is empty, the row keeps its stored error and failures.
	NotBefore time.Time
	Error     string
	Failures  []Failure
}

// End returns an ending for the row's claim. The caller must set the times and the error.
func (r Row) End(to State) Ending {
	return Ending{ID: r.ID, Session: r.Mark.Session, Batch: r.Mark.Batch, To: to,
		Attempts: r.Mark.Attempts}
}

// Uncounted returns an ending for the row's claim that does not count the attempt.
func (r Row) Uncounted(to State) Ending {
	e := r.End(to)
	e.Attempts = max(e.Attempts-1, 0)
	return e
}

// Failed returns an ending for the row's claim whose attempt has failed. The process is empty if it
// died.
func (r Row) Failed(at time.Time, process, text string) Ending {
	e, text := r.End(Retrying), cmp.Or(text, "failed without a reason")
	one := Failure{int(r.Mark.Attempts), at, Cut(process, mostProcess), Cut(text, mostText)}
	all := append(slices.Clip(r.Mark.Failures), one)
	e.At, e.Error, e.Failures = at, Cut(text, mostError), all[max(0, len(all)-MostFailures):]
	return e
}

// Cancelled returns an ending for the row's claim that makes a cancelled row dead.
func (r Row) Cancelled(at time.Time) Ending {
	e := r.End(Dead)
	e.At, e.Error, e.Failures = at, Cancelled, r.Mark.Failures
	return e
}

// Counts stores the number of rows in each state, as the type Counts of package claim does.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // set by package claim
	Later                                int64 // ready, and not due
	Odd                                  int64
}

// A Depth contains the number of rows in each state, and the times of the first ready row and the
// first retry.
type Depth struct {
	Counts
	// Since is the time from which the first ready row could be claimed. With Options.Due it is the
	// due time of the row. Otherwise it is the time in the row's ObjectID. It is zero if the time is
	// unknown.
	Since time.Time
	Retry time.Time // when the first retry is due; zero without one
}

// An Ask restricts a claim to some of the ready rows.
type Ask struct {
	Due     time.Time       // with Options.Due: only rows that are due at this time
	Without []bson.RawValue // excludes the rows with these _ids
	Held    []bson.RawValue // excludes the rows with these keys, except rows that hold their key
}

// A Store stores the rows of one queue. A method usually sends one command. If it sends another
// number of commands, its comment gives that number. ErrRefused, *HeldError and ErrQuery are
// replies of the server. After any other error, the server may have carried out the command, or may
// still carry it out.
type Store interface {
	// Claim claims the first ready row and counts an attempt. If no row is ready, it returns nil. If
	// another row holds the key of the first ready row, it returns a *HeldError. If the server refuses
	// the change, it returns ErrRefused.
	Claim(ctx context.Context, c Claim, ask Ask) (*Row, error)
	// First returns the _id of the row that Claim would claim. If no row is ready, it returns a zero
	// value. If the server refuses the query, it returns ErrQuery.
	First(ctx context.Context, ask Ask) (bson.RawValue, error)
	// Held returns the keys that rows hold, at most MostHeld. The store must have Options.Key.
	Held(ctx context.Context) ([]bson.RawValue, error)
	// Settle releases the keys of done rows, of dead rows, and of ready rows that do not match the
	// filter. It returns the number of these rows. The store must have Options.Key.
	Settle(ctx context.Context) (int, error)
	// End ends claims and returns the number of rows that it changed. It changes a row only if the row
	// has the session and the batch of the ending. It does not make a cancelled row Ready or Retrying.
	// If it returns ErrRefused, it has carried out the remaining endings. It joins the transaction of
	// ctx.
	End(ctx context.Context, endings ...Ending) (int, error)
	// Claimed returns the rows that are claimed under a slot, without their documents and without odd
	// rows. It returns at most MostClaimed rows.
	Claimed(ctx context.Context, slot Slot) ([]Row, error)
	// Read returns the row with the given _id, or nil if the row is gone.
	Read(ctx context.Context, id bson.RawValue) (*Row, error)
	// Wake makes retries ready that are due at the given time, and returns the number of changed rows.
	// If the server refuses to change a row, Wake sends more commands.
	Wake(ctx context.Context, now time.Time) (int, error)
	// Slots returns the slots of all claimed rows.
	Slots(ctx context.Context) ([]Slot, error)
	// Odd returns at most twenty rows that can never be claimed or ended. If among is not zero, it
	// reads at most that many ready rows. It sends two commands.
	Odd(ctx context.Context, among int) ([]Malformed, error)
	// Cancel makes a ready or retrying row dead, and marks a claimed row as cancelled. It returns Dead
	// or Claimed. If the row is in another state or does not exist, it returns an empty state. It
	// sends at most nine commands.
	Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error)
	// Purge removes at most a thousand rows that became Dead or Done before the given time. If the
	// time is zero, Purge selects all rows in that state. It returns zero only if it finds no row. It
	// usually sends two commands.
	Purge(ctx context.Context, state State, before time.Time) (int, error)
	// Later returns the first n ready rows that are due at the given time or later. The store must
	// have Options.Due.
	Later(ctx context.Context, after time.Time, n int) ([]Event, error)
	// Now returns the time of the server's clock.
	Now(ctx context.Context) (time.Time, error)
	// Count counts the rows in each state. If most is not zero, it counts at most that many rows of a
	// state, omits done rows, and sets the times of the Depth. It sends at most ten commands.
	Count(ctx context.Context, most int64) (Depth, error)
	// Insert adds documents.
	Insert(ctx context.Context, docs []any) error
	// InsertUnique adds a document unless a row has the given key. It reports whether it added the
	// document. The first call in a process also creates an index.
	InsertUnique(ctx context.Context, key string, doc any) (bool, error)
	// Transact calls the given function in a transaction, possibly several times.
	Transact(ctx context.Context, work func(context.Context) error) error
	// Watch passes the events of rows to the given function, in order, until ctx ends. If the server
	// has no change streams, it returns ErrNoStream.
	Watch(ctx context.Context, report func(Event)) error
	// Paused reports whether the queue with the given name is paused.
	Paused(ctx context.Context, queue string) (bool, error)
}

// A Malformed describes an odd row.
type Malformed struct {
	ID      bson.RawValue
	Field   string
	Problem string
}

func (m *Malformed) Error() string {
	return fmt.Sprintf("odd row %s: field %q %s; repair or remove the row", Text(m.ID), m.Field,
		m.Problem)
}

// Text formats an _id for people.
func Text(id bson.RawValue) string {
	text := id.String()
	if s, ok := id.StringValueOK(); ok {
		text = fmt.Sprintf("%q", s)
	} else if n, ok := id.AsInt64OK(); ok && id.Type != bson.TypeDouble {
		text = fmt.Sprint(n)
	}
	return Cut(text, 200)
}

// Key returns a string that identifies an _id in a map.
func Key(id bson.RawValue) string { return string(rune(id.Type)) + string(id.Value) }

// Parse parses the given field of a document. It ignores unknown elements, and elements of a wrong
// type. The queries for rows to claim or to end exclude odd rows, see [Store.Odd].
func Parse(doc bson.Raw, field string) Row {
	in, _ := doc.Lookup(field).DocumentOK()
	row := Row{ID: doc.Lookup("_id"), Doc: doc, Mark: Mark{State: Ready}}
	m := &row.Mark
	if state, _ := in.Lookup("state").StringValueOK(); state != "" {
		m.State = State(state)
	}
	m.Fence, m.Attempts, m.SlotFence = count(in, "fence"), count(in, "attempts"), count(in, "slotFence")
	m.Attempts = min(m.Attempts, m.Fence) // another program may have written more
	m.Slot, _ = in.Lookup("slot").StringValueOK()
	m.Cancelled, _ = in.Lookup("cancelled").BooleanOK()
	m.Holds, _ = in.Lookup("holds").StringValueOK()
	m.Session, _ = in.Lookup("session").ObjectIDOK()
	m.Batch, _ = in.Lookup("batch").ObjectIDOK()
	m.Error, _ = in.Lookup("error").StringValueOK()
	m.NotBefore, _ = in.Lookup("notBefore").TimeOK()
	m.DoneAt, _ = in.Lookup("doneAt").TimeOK()
	m.DeadAt, _ = in.Lookup("deadAt").TimeOK()
	m.Failures = failuresOf(in)
	return row
}

// A Failure is a failed attempt, as a row stores it.
type Failure struct {
	Attempt int `bson:"attempt,omitempty"` // zero if unknown
	At      time.Time
	Process string `bson:"process,omitempty"` // empty if the process died
	Error   string
}

// The limits for the failures of a row: their number, and the bytes of each text, each process name
// and the last error. They add at most about 10 KB to a row.
const (
	MostFailures = 10
	mostText     = 700
	mostProcess  = 200
	mostError    = 2000
)

// Cut returns the text as valid UTF-8. If the text is longer than the given number of bytes, Cut
// shortens it and appends dots.
func Cut(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// failuresOf returns the last failures in the field of a row. It ignores elements of a wrong type.
func failuresOf(in bson.Raw) (list []Failure) {
	array, _ := in.Lookup("errors").ArrayOK()
	values, _ := array.Values()
	for _, v := range values {
		if one, ok := v.DocumentOK(); ok {
			f := Failure{Attempt: int(count(one, "attempt")), At: dateIn(one, "at")}
			f.Process, _ = one.Lookup("process").StringValueOK()
			f.Error, _ = one.Lookup("error").StringValueOK()
			list = append(list, f)
		}
	}
	return list[max(0, len(list)-MostFailures):]
}
