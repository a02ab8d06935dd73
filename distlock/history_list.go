package distlock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A HistoryEntry is one thing that happened to a lock. Fields that do not apply are zero. Texts are as stored: escape
// them before showing them.
type HistoryEntry struct {
	At time.Time // by the server's clock, as the process knew it
	// Kind says what happened: "acquired", "granted" (in line), "taken over", "released", "released late", "lost",
	// "lease ran out", "dropped", "broken", "evicted", as [EventKind] has them; or "missed".
	Kind string
	Name string // of the lock
	// Process did it: the holder's process id; of a break the process that broke the lock, or host and process
	// number where that was none.
	Process  string
	Previous string // the process id of who was taken over, broken or evicted
	Session  bson.ObjectID
	Fence    int64  // 0 for a waiter that was evicted
	Mode     string // "exclusive", "shared" or "permit"
	Leads    bool   // it is of an election: who acquired the lock leads, who lost or released it does not
	Why      string // the reason that the holder, or who broke the lock, gave
	Rule     string // the takeover rule; see [Event]
	Evidence string // on which it decided
	Cause    string // why it was lost
	Waited   time.Duration
	Held     time.Duration
	Missed   int64 // of kind "missed": how many events before this were not written
}

// A HistoryQuery says which entries are wanted. The zero value means all of them.
type HistoryQuery struct {
	Name  string        // of the lock; empty for all locks
	Since time.Duration // at most that old, by the server's clock, for which it is asked; 0 for any age
	Limit int           // the most entries; 0 for no limit
}

// History lists what happened to the locks, newest first, whatever process wrote it. What happened since the last
// ping of a process may be missing; see [HistoryConfig]. An entry that cannot be understood is yielded as a
// *MalformedError, and the listing goes on; any other error ends it. Where no history was ever written the listing
// is empty. One command for each page of the server's answer.
//
// Errors: those of Locks; [ErrBadName]; [ErrBadOption] for a Since or Limit below zero.
func (i *Inspector) History(ctx context.Context, q HistoryQuery) iter.Seq2[HistoryEntry, error] {
	return func(yield func(HistoryEntry, error) bool) {
		ctx, done, err := i.begin(ctx)
		var asked catalog.HistoryQuery
		if err == nil {
			defer done()
			asked, err = i.historyQuery(ctx, q)
		}
		if err != nil {
			yield(HistoryEntry{}, fmt.Errorf("distlock: history: %w", err))
			return
		}
		for e, err := range i.store.ReadHistory(ctx, asked) {
			if err != nil {
				err = fmt.Errorf("distlock: %w", err)
			}
			if !yield(historyEntry(e), err) {
				return
			}
		}
	}
}

// History is that of the Manager's [Inspector].
func (m *Manager) History(ctx context.Context, q HistoryQuery) iter.Seq2[HistoryEntry, error] {
	return m.Inspector().History(ctx, q)
}

func (i *Inspector) historyQuery(ctx context.Context, q HistoryQuery) (catalog.HistoryQuery, error) {
	asked := catalog.HistoryQuery{Name: q.Name, Limit: q.Limit}
	if q.Since < 0 || q.Limit < 0 {
		return asked, fmt.Errorf("%w: Since is %v and Limit %d; neither may be below zero", ErrBadOption, q.Since, q.Limit)
	}
	if q.Name != "" {
		if err := checkName(q.Name); err != nil {
			return asked, err
		}
	}
	if q.Since == 0 {
		return asked, nil
	}
	server, err := i.store.Hello(ctx)
	if err != nil {
		return asked, err
	}
	if server.Time.IsZero() { // behind a mongos
		server.Time = i.clock.Now().Wall
	}
	asked.Since = server.Time.Add(-q.Since)
	return asked, nil
}

func historyEntry(e catalog.HistoryEntry) HistoryEntry {
	if e.Kind == "" { // beside an error
		return HistoryEntry{}
	}
	return HistoryEntry{
		At: e.At, Kind: e.Kind, Name: e.Name, Process: e.Process, Previous: e.Previous, Session: e.TS,
		Fence: e.Fence, Mode: modeWord(e.Mode), Leads: e.Label == electionLabel, Why: e.Why, Rule: e.Rule,
		Evidence: e.Evidence, Cause: e.Cause, Waited: e.Waited, Held: e.Held, Missed: e.Missed,
	}
}
