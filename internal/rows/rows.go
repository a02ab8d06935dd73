// Package rows stores the state of package claim in one field of a user's documents, and changes
// the field by conditional writes. The only clock that it reads is the server's.
package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A State is the state of a row. A row without the field is ready.
type State string

// The states.
const (
	Ready    State = "ready"
	Claimed  State = "claimed"
	Retrying State = "retrying" // waits until notBefore
	Dead     State = "dead"     // failed too often, or was discarded or cancelled
	Done     State = "done"
)

// The errors of attempts whose process died and of rows that were cancelled.
const (
	DiedText  = "process died"
	Cancelled = "cancelled"
)

// A Mark is the parsed field of a row. A part that the field does not have is zero.
type Mark struct {
	State     State
	Locks     string        // the database of the slot; empty if unknown
	Slot      string        // the name of the lock of the process that claimed the row
	SlotFence int64         // the fence of that lock
	Session   bson.ObjectID // the session of that lock
	Batch     bson.ObjectID // new for every claim
	Fence     int64         // rises with every claim of this row
	Attempts  int64         // counted claims, including the present one; at most Fence
	NotBefore time.Time
	Error     string
	Cancelled bool      // set while the row was claimed; the claim ends as Dead
	Holds     string    // the name of Options.Key while the row holds its key
	Failures  []Failure // the last ones
	DoneAt    time.Time
	DeadAt    time.Time
	Unique    string // the key of InsertUnique
}

// A Claim has the values that a claim writes into a row.
type Claim struct {
	Locks     string
	Slot      string
	SlotFence int64
	Session   bson.ObjectID
	Batch     bson.ObjectID
	At        time.Time // for people to read
}

// A Slot names the lock of a process that claims rows. Locks is the lock's database.
type Slot struct{ Locks, Name string }

// A Row is a document of the user with its field parsed.
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
	Attempts int64     // the number of attempts after the end
	At       time.Time // set for Done and Dead
	// NotBefore is set for Retrying. Error and Failures are set for Retrying and Dead. If Keep is
	// true, the row keeps its stored error and failures.
	NotBefore time.Time
	Error     string
	Failures  []Failure
	Keep      bool
}

// End returns an ending of the row's claim, without a time and a reason.
func (r Row) End(to State) Ending {
	return Ending{ID: r.ID, Session: r.Mark.Session, Batch: r.Mark.Batch, To: to,
		Attempts: r.Mark.Attempts}
}

// Uncounted returns an ending that does not count the attempt.
func (r Row) Uncounted(to State) Ending {
	e := r.End(to)
	e.Attempts, e.Keep = max(e.Attempts-1, 0), true
	return e
}

// Counts is the number of rows in each state. A row that can never be claimed counts as Odd only.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // set by the process that claims rows
	Later                                int64 // ready, and not due
	Odd                                  int64
}

// A Depth holds the numbers of a queue's rows, and the times of its first ready row and its first
// retry.
type Depth struct {
	Counts
	// Since is the time from which the first ready row could be claimed. It is the row's due time,
	// or without Options.Due the time in the row's ObjectID. It is zero if unknown.
	Since time.Time
	Retry time.Time // when the first retry is due; zero without one
}

// An Ask selects among the ready rows.
type Ask struct {
	Due     time.Time       // with Options.Due: only rows that are due at this time
	Without []bson.RawValue // excludes the rows with these _ids
	Held    []bson.RawValue // excludes the rows with these keys, except rows that hold their key
	Only    bson.RawValue   // selects only the row with this _id; zero: no restriction
}

// A Store keeps the rows of one queue. Each method sends one command, unless its comment gives
// another number. After most errors a method may have changed rows, or may still change them. The
// exceptions are *RefusedError, *HeldError and *QueryError, which are answers of the server.
type Store interface {
	// Claim claims the first ready row and counts an attempt. It returns nil if no row is ready.
	// Errors: *HeldError if another row holds the key; *RefusedError if the server refuses the
	// change.
	Claim(ctx context.Context, c Claim, ask Ask) (*Row, error)
	// First returns the _id of the row that Claim would claim, or a zero value. Its error is a
	// *QueryError if the server refuses the query.
	First(ctx context.Context, ask Ask) (bson.RawValue, error)
	// Held returns the keys that rows hold, at most MostHeld. Without Options.Key it sends no
	// command.
	Held(ctx context.Context) ([]bson.RawValue, error)
	// Settle releases the keys of rows that are done, dead, or ready outside of the filter. It
	// returns the number of these rows.
	Settle(ctx context.Context) (int, error)
	// End ends claims and returns the number of rows that it changed. It changes a row only if the
	// ending has the row's session and batch. It does not make a cancelled row Ready or Retrying.
	// If it returns a *RefusedError, it has carried out the other endings. A call with one ending
	// joins the transaction of ctx.
	End(ctx context.Context, endings ...Ending) (int, error)
	// Claimed returns the rows that a slot has claimed, at most MostClaimed, without documents.
	Claimed(ctx context.Context, slot Slot) ([]Row, error)
	// Current returns the rows with these _ids, with their documents if documents is true.
	Current(ctx context.Context, ids []bson.RawValue, documents bool) ([]Row, error)
	// Wake makes due retries ready.
	Wake(ctx context.Context, now time.Time) (int, error)
	// Slots returns the slots of all claimed rows.
	Slots(ctx context.Context) ([]Slot, error)
	// Odd returns at most twenty rows that can never be claimed. It sends two commands.
	Odd(ctx context.Context) ([]Malformed, error)
	// Cancel makes a ready or retrying row dead, and marks a claimed row. It returns Dead or
	// Claimed, or an empty state if the row is in another state or does not exist. It sends at most
	// nine commands.
	Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error)
	// Purge removes at most a thousand rows that became Dead or Done before a time. A zero time
	// selects all of them. It sends two commands.
	Purge(ctx context.Context, state State, before time.Time) (int, error)
	// Later returns the first n ready rows that are due after a time.
	Later(ctx context.Context, after time.Time, n int) ([]Coming, error)
	// Now returns the time of the server's clock.
	Now(ctx context.Context) (time.Time, error)
	// Count counts the rows in each state. If most is not zero, it counts at most that many rows of
	// a state, omits done rows, and sets the times of the Depth. It sends at most ten commands.
	Count(ctx context.Context, most int64) (Depth, error)
	// Insert adds documents.
	Insert(ctx context.Context, docs []any) error
	// InsertUnique adds a document unless a row has this key, and reports whether it did.
	InsertUnique(ctx context.Context, key string, doc any) (bool, error)
	// Transact runs work in a transaction, possibly several times.
	Transact(ctx context.Context, work func(context.Context) error) error
	// Watch reports events of rows, in order, until ctx ends. It returns ErrNoStream if the server has
	// no change streams.
	Watch(ctx context.Context, report func(Event)) error
	// Paused reports whether the queue of this name is paused.
	Paused(ctx context.Context, queue string) (bool, error)
}

// A Malformed describes a row that cannot be parsed, or can never be claimed.
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

// Key returns an _id as the key of a map.
func Key(id bson.RawValue) string { return string(rune(id.Type)) + string(id.Value) }

// Parse parses the field of a document. It ignores unknown parts of the field.
func Parse(doc bson.Raw, field string) (Row, *Malformed) {
	row := Row{ID: doc.Lookup("_id"), Doc: doc, Mark: Mark{State: Ready}}
	bad := func(name, problem string) (Row, *Malformed) {
		return row, &Malformed{ID: row.ID, Field: name, Problem: problem}
	}
	value, err := doc.LookupErr(field)
	if err != nil {
		return row, nil
	}
	in, ok := value.DocumentOK()
	if !ok {
		return bad(field, fmt.Sprintf("is a %s, not a document", value.Type))
	}
	m := &row.Mark
	if v, err := in.LookupErr("state"); err == nil && v.Type != bson.TypeNull {
		s, ok := v.StringValueOK()
		if !ok {
			return bad(field+".state", fmt.Sprintf("is a %s, not a string", v.Type))
		}
		m.State = State(s)
	}
	for _, p := range parts {
		if problem := p.problem(in, m.State); problem != "" {
			return bad(field+"."+p.name, problem)
		}
	}
	m.Fence, m.Attempts, m.SlotFence = count(in, "fence"), count(in, "attempts"), count(in, "slotFence")
	m.Attempts = min(m.Attempts, m.Fence) // only another program writes more
	m.Locks, _ = in.Lookup("locks").StringValueOK()
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
	m.Unique, _ = in.Lookup("unique").StringValueOK()
	if !slices.Contains([]State{Ready, Claimed, Retrying, Dead, Done}, m.State) {
		return bad(field+".state", fmt.Sprintf("is %q, which is no state", Text(in.Lookup("state"))))
	}
	return row, nil
}

// A Failure is a failed attempt, as a row stores it.
type Failure struct {
	Attempt int64 // zero if unknown
	At      time.Time
	Process string // empty if the process died
	Error   string
}

// Bounds of the failures that a row keeps: their number and the bytes of their texts. With the last
// error they add about 10 KB at most to a row.
const (
	MostFailures = 10
	mostText     = 700
	mostProcess  = 200
)

// Failed adds a failure to those of a row, and returns at most the last MostFailures.
func Failed(before []Failure, one Failure) []Failure {
	one.Error, one.Process = Cut(one.Error, mostText), Cut(one.Process, mostProcess)
	all := append(before[:len(before):len(before)], one)
	return all[max(0, len(all)-MostFailures):]
}

// Cut returns text as valid UTF-8. If text has more bytes than the parameter most, Cut cuts it
// there and adds dots.
func Cut(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// stored returns failures in their stored form.
func stored(list []Failure) bson.A {
	all := bson.A{}
	for _, f := range list {
		one := bson.D{}
		if f.Attempt > 0 {
			one = append(one, e("attempt", f.Attempt))
		}
		one = append(one, e("at", f.At))
		if f.Process != "" {
			one = append(one, e("process", f.Process))
		}
		all = append(all, append(one, e("error", f.Error)))
	}
	return all
}

// failuresOf returns the last failures in the field of a row. It skips failures that it cannot
// parse.
func failuresOf(in bson.Raw) (list []Failure) {
	array, _ := in.Lookup("errors").ArrayOK()
	values, _ := array.Values()
	for _, v := range values {
		one, ok := v.DocumentOK()
		if !ok {
			continue
		}
		var f Failure
		f.Attempt, _ = one.Lookup("attempt").AsInt64OK()
		at, _ := one.Lookup("at").TimeOK()
		f.At = at.UTC()
		f.Process, _ = one.Lookup("process").StringValueOK()
		f.Error, _ = one.Lookup("error").StringValueOK()
		list = append(list, f)
	}
	return list[max(0, len(list)-MostFailures):]
}
