package rows

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A State is where a row stands. A row without the field is ready.
type State string

// The states.
const (
	Ready    State = "ready"
	Claimed  State = "claimed"
	Retrying State = "retrying" // until notBefore
	Dead     State = "dead"     // it failed too often
	Done     State = "done"
)

// A Mark is the field of a row, as it is stored. Zero fields are absent.
type Mark struct {
	State     State
	Locks     string        // the database in which that lock is; empty when it is not said
	Slot      string        // name of the lock whose holder claimed it
	SlotFence int64         // of that lock
	Session   bson.ObjectID // of that lock
	Batch     bson.ObjectID // new for every claim
	Fence     int64         // rises with every claim of this row
	Attempts  int64         // claims that were begun, the present one included
	NotBefore time.Time
	Error     string
	Lease     time.Duration // zero: none
	Beat      int64         // renewals of this claim
	Waiting   bool          // a rescue does not count; a second one does if it was renewed
	Rescued   bool          // once, at least
	Cancelled bool          // while it was claimed: whoever has the claim, or the next, ends it dead
	Holds     string        // the field whose value it holds against others that have it; empty: none
	Failures  []Failure     // the last ones
	DoneAt    time.Time     // of Done
	DeadAt    time.Time     // of Dead
	Unique    string        // the key under which it was added; empty: none
}

// A Claim is what a claimed row is marked with.
type Claim struct {
	Locks     string
	Slot      string
	SlotFence int64
	Session   bson.ObjectID
	Batch     bson.ObjectID
	At        time.Time // for people
	Lease     time.Duration
	Waiting   bool // see [Mark]
}

// A Slot is the lock whose holder has claimed rows: its name, and the database that it is in.
type Slot struct{ Locks, Name string }

// A Row is a document of the user with its field understood.
type Row struct {
	ID   bson.RawValue
	Doc  bson.Raw
	Mark Mark
}

// An Ending is what becomes of a claimed row.
type Ending struct {
	ID        bson.RawValue
	Session   bson.ObjectID
	Batch     bson.ObjectID
	To        State         // Ready gives the attempt back
	NotBefore time.Time     // of Retrying
	Error     string        // of Retrying and Dead
	Uncounted bool          // of Retrying: the attempt is given back, and the last error stays
	Delete    bool          // of Done: remove the document
	At        time.Time     // of Done and Dead
	Failures  []Failure     // of Retrying and Dead: all that the row keeps
	Pause     time.Duration // of Retrying; not of a store: who ends claims makes NotBefore of it
}

// Counts are the rows by state.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	Refused                              int64 // not of a store: who claims rows knows
	Later                                int64 // ready, and not due yet or never: not in Ready
}

// A Store keeps the rows of one queue. Each method is one command but where it says otherwise. A
// method that returns an error may have been carried out, or may be later. With a *RefusedError the
// rest was carried out, each row by itself.
type Store interface {
	// Candidates returns the first n ready rows after skip others, by when they are due, the order
	// that the user has given and else about by age, whether they were claimed before or not, without
	// the document of the user, and those among them that are malformed. Those whose field is no
	// document are left out. A *QueryError when the server does not understand the question.
	Candidates(ctx context.Context, n, skip int, ask *Ask) ([]Row, []Malformed, error)
	// Mark claims those of the rows that are still ready and whose keys no other row holds.
	Mark(ctx context.Context, ids []bson.RawValue, c Claim) error
	// Marked returns those of the rows that the claim has got.
	Marked(ctx context.Context, ids []bson.RawValue, c Claim) ([]Row, error)
	// MarkOne claims the first ready row. It returns nil when there is none, a *HeldError when another
	// row holds the key of the first one, and a *Malformed when it is claimed and not understood.
	MarkOne(ctx context.Context, c Claim, ask *Ask) (*Row, error)
	// Held returns the keys that rows hold which are claimed or retrying, 10,000 at most, and not
	// null: what it leaves out a *HeldError tells. Of these keys, if there are any, fewer than 10,000.
	// all is false when there may be more. One command, none of a store that knows no keys.
	Held(ctx context.Context, of []bson.RawValue) (keys []bson.RawValue, all bool, err error)
	// Settle takes these keys from rows that have no right to hold them: they are done or dead, by a
	// hand, or no rows of the queue any more.
	Settle(ctx context.Context, keys []bson.RawValue) (int, error)
	// Finish ends claims and returns how many of them still were. What is ended names its session and
	// its batch. Retrying does not match a row that was cancelled. One command, two when some
	// documents are deleted and others are not.
	Finish(ctx context.Context, endings []Ending) (int, error)
	// FinishIn is Finish in the transaction of ctx.
	FinishIn(ctx context.Context, ending Ending) (int, error)
	// Current returns the rows that are there, without the document of the user.
	Current(ctx context.Context, ids []bson.RawValue) ([]Row, error)
	// Tidy makes rows ready whose pause is over, and those that earlier holders of the slot have
	// claimed: earlier than the fence. One that was waiting gets its attempt back; another one that
	// was claimed most times already is dead. A claim that does not say in which database its slot is
	// counts as one of this slot.
	Tidy(ctx context.Context, now time.Time, slot Slot, fence, most int64) (int, error)
	// Dying returns rows that Tidy of a slot would make dead, a thousand at most.
	Dying(ctx context.Context, slot Slot, fence, most int64) ([]bson.RawValue, error)
	// Documents returns the rows that are there, with their documents.
	Documents(ctx context.Context, ids []bson.RawValue) ([]Row, error)
	// Batches returns the batches of the rows that a session has claimed.
	Batches(ctx context.Context, slot Slot, session bson.ObjectID) ([]bson.ObjectID, error)
	// GiveBack makes rows ready that a session has claimed in these batches; nil: in any.
	GiveBack(ctx context.Context, session bson.ObjectID, batches []bson.ObjectID) (int, error)
	// Renew raises the counter of a claim's lease and returns how many rows it has. A row that was
	// rescued before waits no more.
	Renew(ctx context.Context, row Row) (int, error)
	// Leased returns the rows that are claimed with a lease, without the document of the user.
	Leased(ctx context.Context) ([]Row, error)
	// Expire makes a row ready whose lease was not renewed since it was read, or dead when it was
	// claimed most times. One that was waiting gets its attempt back.
	Expire(ctx context.Context, now time.Time, row Row, most int64) (int, error)
	// Slots returns the slots that own claimed rows.
	Slots(ctx context.Context) ([]Slot, error)
	// Odd returns some rows whose state is none of those above, or that are claimed by nobody, or
	// whose key is a list. Two commands where there are keys.
	Odd(ctx context.Context) ([]Malformed, error)
	// Cancel makes a row dead that is ready or retrying, and marks one that is claimed: it belongs to
	// its worker, which ends it. It returns Dead or Claimed, the state in which it is left; none when
	// it is none of these. Two commands for a row that is claimed.
	Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error)
	// Purge removes documents of rows that are Dead or Done, a thousand at most, and returns how many:
	// none when none is left. Only those that have been so since before a time; zero: at all. Two
	// commands.
	Purge(ctx context.Context, state State, before time.Time) (int, error)
	// Later returns the first n ready rows that are due after a time, the earliest first; none where
	// rows are not due at a time.
	Later(ctx context.Context, after time.Time, n int) ([]Coming, error)
	// Now is what the server's clock said before the reply came.
	Now(ctx context.Context) (time.Time, error)
	// Count costs one command a state, and two more where rows are due at a time.
	Count(ctx context.Context) (Counts, error)
	// Depth is Count as far as most of each state, and when the first rows are due. Of rows that are
	// due at a time those count that are then. Six commands, or seven, each by an index.
	Depth(ctx context.Context, now time.Time, most int64) (Depth, error)
	// Insert adds documents.
	Insert(ctx context.Context, docs []any) error
	// InsertUnique adds a document unless there is one with this key, and reports whether it did.
	InsertUnique(ctx context.Context, key string, doc any) (bool, error)
	// Transact runs work in a transaction. It may run several times.
	Transact(ctx context.Context, work func(context.Context) error) error
	// Prepare makes sure of the indexes. Two commands, and one for each that is missing.
	Prepare(ctx context.Context) error
	// Watch tells which rows become ready and which are claimed, those of others included, in order,
	// until ctx ends. It returns ErrNoStream at once where there are no change streams.
	Watch(ctx context.Context, tell func(Event)) error
}

// A Malformed names a row whose field cannot be understood.
type Malformed struct {
	ID      bson.RawValue
	Field   string
	Problem string
}

func (m *Malformed) Error() string {
	return fmt.Sprintf("malformed row %s: field %q %s; repair it by hand, or remove it", Text(m.ID),
		m.Field, m.Problem)
}

// Text is an _id for people.
func Text(id bson.RawValue) string {
	const longest = 200
	text := id.String()
	if s, ok := id.StringValueOK(); ok {
		text = fmt.Sprintf("%q", s)
	} else if n, ok := id.AsInt64OK(); ok && id.Type != bson.TypeDouble {
		text = fmt.Sprint(n)
	}
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}

// Key is an _id as the key of a map.
func Key(id bson.RawValue) string { return string(rune(id.Type)) + string(id.Value) }

// Parse reads the field of a document. Extra fields in it do not matter.
func Parse(doc bson.Raw, field string) (Row, *Malformed) {
	row := Row{ID: doc.Lookup("_id"), Doc: doc}
	bad := func(name, problem string) (Row, *Malformed) {
		return row, &Malformed{ID: row.ID, Field: name, Problem: problem}
	}
	value, err := doc.LookupErr(field)
	if err != nil {
		row.Mark.State = Ready
		return row, nil
	}
	in, ok := value.DocumentOK()
	if !ok {
		return bad(field, fmt.Sprintf("is a %s, not a document", value.Type))
	}
	m := &row.Mark
	m.State = Ready
	if v, err := in.LookupErr("state"); err == nil && v.Type != bson.TypeNull {
		s, ok := v.StringValueOK()
		if !ok {
			return bad(field+".state", fmt.Sprintf("is a %s, not a string", v.Type))
		}
		m.State = State(s)
	}
	var lease int64
	for name, into := range map[string]*int64{"fence": &m.Fence, "attempts": &m.Attempts,
		"slotFence": &m.SlotFence, "beat": &m.Beat, "leaseMS": &lease} {
		v, err := in.LookupErr(name)
		if err != nil {
			continue
		}
		if *into, ok = v.AsInt64OK(); !ok {
			return bad(field+"."+name, fmt.Sprintf("is a %s, not a number", v.Type))
		}
	}
	m.Lease = time.Duration(lease) * time.Millisecond
	m.Locks, _ = in.Lookup("locks").StringValueOK()
	m.Slot, _ = in.Lookup("slot").StringValueOK()
	m.Waiting, _ = in.Lookup("waiting").BooleanOK()
	m.Rescued, _ = in.Lookup("rescued").BooleanOK()
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
	switch m.State {
	case Ready, Retrying, Dead, Done:
	case Claimed:
		if m.Slot == "" || m.Session.IsZero() {
			return bad(field, "is claimed by nobody: it has no slot or session")
		}
	default:
		return bad(field+".state", fmt.Sprintf("is %q, which is no state", Text(in.Lookup("state"))))
	}
	return row, nil
}
