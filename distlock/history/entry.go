package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// An Entry is one thing that happened to a lock. Fields that do not apply are zero. Texts are as
// stored: escape them before showing them.
type Entry struct {
	At time.Time // by the server's clock, as the process knew it
	// Kind says what happened: "acquired", "granted" (in line), "taken over", "released", "released
	// late", "lost", "lease ran out", "dropped", "broken", "evicted", as [distlock.EventKind] has
	// them; or "missed".
	Kind string
	Name string // of the lock
	// Process did it: the holder's process id; of a break the process that broke the lock, or host and
	// process number where that was none.
	Process  string
	Previous string // the process id of the process that was taken over, broken or evicted
	Session  bson.ObjectID
	Fence    int64  // 0 for a waiter that was evicted
	Mode     string // "exclusive", "shared" or "permit"
	Leads    bool   // of an election: the lock is leadership
	Why      string // the reason that the holder, or the operator, gave
	Rule     string // the takeover rule; see [distlock.Event]
	Evidence string // the figures that it was decided on
	Cause    string // of a loss
	Waited   time.Duration
	Held     time.Duration
	Missed   int64 // of kind "missed": how many events before this were not written
}

// A Query says which entries are wanted. The zero value means all of them.
type Query struct {
	Name  string        // of the lock; "" for all locks
	Since time.Duration // at most that old, by the server's clock; 0 for any age
	Limit int           // the most entries; 0 for no limit
}

// Read lists what happened to the locks, newest first, whatever process wrote it; nothing where no
// history was ever written. What happened since the last ping of a process may be missing. An entry
// that cannot be understood is yielded as a *distlock.MalformedError, and the listing goes on; any
// other error ends it. One command for each page of the server's answer, and one more for Since.
//
// Errors: [distlock.ErrBadName]; [distlock.ErrBadOption] for a Since or Limit below zero;
// [distlock.ErrUnavailable]; *distlock.PrivilegeError; the cause of ctx.
func (l *Log) Read(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		asked, err := l.asked(ctx, q)
		if err != nil {
			yield(Entry{}, fmt.Errorf("distlock: history: %w", err))
			return
		}
		for e, err := range l.store.ReadHistory(ctx, asked) {
			if err != nil {
				err = fmt.Errorf("distlock: %w", err)
			}
			if !yield(entryFrom(e), err) {
				return
			}
		}
	}
}

func (l *Log) asked(ctx context.Context, q Query) (catalog.HistoryQuery, error) {
	asked := catalog.HistoryQuery{Name: q.Name, Limit: q.Limit}
	switch {
	case ctx == nil:
		return asked, errNoContext
	case ctx.Err() != nil:
		return asked, context.Cause(ctx)
	}
	if q.Since < 0 || q.Limit < 0 {
		return asked, fmt.Errorf("%w: Since is %v and Limit %d; neither may be below zero",
			distlock.ErrBadOption, q.Since, q.Limit)
	}
	if problem := catalog.BadText(q.Name, maxName); problem != "" {
		return asked, fmt.Errorf("%w: it %s", distlock.ErrBadName, problem)
	}
	if q.Since == 0 {
		return asked, nil
	}
	server, err := l.store.Hello(ctx)
	if err != nil {
		return asked, err
	}
	if server.Time.IsZero() { // behind a mongos
		server.Time = l.clock.Now().Wall
	}
	asked.Since = server.Time.Add(-q.Since)
	return asked, nil
}

// maxName bounds the name of a lock, in bytes.
const maxName = 1024

// electionLabel is the label of package election: a holder with that label leads.
const electionLabel = "election"

// leaseKind is the kind of the entry for a guard whose lease ran out.
const leaseKind = "lease ran out"

// exclusive is the word for a mode that is not written.
const exclusive = "exclusive"

func entryFrom(e catalog.HistoryEntry) Entry {
	if e.Kind == "" { // beside an error
		return Entry{}
	}
	entry := Entry{
		At: e.At, Kind: e.Kind, Name: e.Name, Process: e.Process, Previous: e.Previous, Session: e.TS,
		Fence: e.Fence, Mode: string(e.Mode), Leads: e.Label == electionLabel, Why: e.Why, Rule: e.Rule,
		Evidence: e.Evidence, Cause: e.Cause, Waited: e.Waited, Held: e.Held, Missed: e.Missed,
	}
	if e.Mode == catalog.Exclusive {
		entry.Mode = exclusive
	}
	return entry
}

func entryOf(e distlock.Event) catalog.HistoryEntry {
	entry := catalog.HistoryEntry{
		Kind: e.Kind.String(), Session: catalog.Session{Name: e.Name, TS: e.Session}, Process: e.Process,
		Previous: e.Previous, Fence: e.Fence, Label: e.Label, Why: e.Why, Rule: e.Rule,
		Evidence: e.Evidence, Waited: e.Waited, Held: e.Held,
	}
	if e.Mode != exclusive {
		entry.Mode = catalog.Mode(e.Mode)
	}
	if e.Kind == distlock.EventLost && errors.Is(e.Err, distlock.ErrLeaseExpired) {
		entry.Kind = leaseKind
	}
	var lost *distlock.LostError
	switch {
	case errors.As(e.Err, &lost) && lost.Cause != nil:
		entry.Cause = lost.Cause.Error()
	case e.Err != nil:
		entry.Cause = e.Err.Error()
	}
	return entry
}
