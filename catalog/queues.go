package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxWaiters is how many contenders may queue in a lock document, beside those who come back to it,
// see [Lock.RoomFor]; more wait inside their processes.
const MaxWaiters = 100

// MaxHolders is how many may hold one lock at a time, shared or by permits; more wait in line.
// Every grant rewrites the whole document and brings it back: a holder is some 270 bytes in it, and
// 2.4 KB with the longest texts, so that a thousand of them and a full line stay far below the 16
// MiB where a server refuses the document.
const MaxHolders = 1000

// A Mode says how a lock is held. The modes of one name do not mix, but for Exclusive and Shared.
type Mode string

// The modes, as they stand in the documents.
const (
	// Exclusive: one holder. Documents have no mode then, as mongos wrote them.
	Exclusive Mode = ""
	// Shared: up to MaxHolders holders, or one exclusive one.
	Shared Mode = "shared"
	// Permit: at most as many holders as the limit in the document says, and at most MaxHolders.
	Permit Mode = "permit"
)

// A Participant is a holder or a waiter of a lock, as its document tells.
type Participant struct {
	TS      bson.ObjectID
	Process string
	Who     string
	Why     string
	Mode    Mode
	// Limit is the number of permits asked for; zero but in mode Permit.
	Limit int32
	// Takeover is the recorded takeover time; zero when absent or out of bounds.
	Takeover time.Duration
	// Since is the server's clock when the party came, or was granted the lock; zero when unknown.
	Since time.Time
	// Fence is that of a holder, zero for a waiter.
	Fence int64
}

// Queues has the operations of waiters. The queue is part of the lock document, in the order of
// arrival, so that the command that frees a lock also grants it to the next waiter.
type Queues interface {
	// Snapshots reads locks, the pings of those who hold or wait for them, and the server's clock,
	// in one command where the server can. Locks without a document are left out. A document that
	// cannot be understood is no error: it is in the result.
	Snapshots(ctx context.Context, names []string) (Looks, error)

	// HeldOrFree reads the named locks that process holds or that are free, and all existing locks in
	// lines. Malformed documents are left out. A process that waits for these locks asks so for its
	// grants. The texts of waiters may be missing.
	HeldOrFree(ctx context.Context, process string, names, lines []string) ([]Lock, error)

	// GrantStream opens a stream of what is granted to process from now on. Errors: ErrNoGrantStream
	// where the deployment or the database has none.
	GrantStream(ctx context.Context, process string) (GrantStream, error)

	// EnterTransaction takes a free lock inside the transaction that ctx carries: until it ends
	// nobody else can take it, and afterwards it is free. Errors: ErrNoTransactions when ctx
	// carries none or there are none here; ErrNotFree, after which the transaction still lives;
	// others, such as a conflict, as the driver worded them, so that its loop runs again.
	EnterTransaction(ctx context.Context, g Request) (Lock, error)
}

// LookAt is [Queues.Snapshots] of one lock. Of one without a document nothing is known, not even
// the time.
func LookAt(ctx context.Context, store interface {
	Snapshots(ctx context.Context, names []string) (Looks, error)
}, name string) (Snapshot, error) {
	seen, err := store.Snapshots(ctx, []string{name})
	return seen[name], err
}

// An EnterMode is the way to enter a lock that is not free.
type EnterMode int

// The ways.
const (
	// Queue: wait at the end of the queue.
	Queue EnterMode = iota
	// Try: neither wait nor pass the waiters.
	Try
	// TryPlain: take the lock for oneself if it is understood and free, and nobody waits for it or
	// stands in it as a sharer, or if it has no document yet: one command, whatever the server.
	// ErrNotFree stands for any other document, of which a Snapshot says what is in the way. The
	// fence is not raised to the clock, see SeedFence.
	TryPlain
)

// A Grant reports that another session's transition granted a lock to a session.
type Grant struct {
	Session
	Process string
	Fence   int64
	// Evidence is not empty when a dead holder or waiter was evicted for it.
	Evidence string
}

// GrantStream is an open stream. Next blocks until there are grants, ctx ends or the stream ends;
// after an error the stream must be closed. Earlier grants are not reported: call
// [Queues.HeldOrFree] after opening a stream.
type GrantStream interface {
	Next(ctx context.Context) ([]Grant, error)
	Close(ctx context.Context)
}

// SnapshotOf returns the snapshot of a lock document with the pings of its holders and waiters;
// ping returns the ping of a process.
func SnapshotOf(lock bson.Raw, ping func(process string) PingState) Snapshot {
	l, bad := ParseLock(lock)
	if bad != nil {
		return Snapshot{LockErr: bad}
	}
	return l.Shown(ping)
}

// Shown is [SnapshotOf] of a document that was understood.
func (l Lock) Shown(ping func(process string) PingState) Snapshot {
	look := Snapshot{Lock: &l}
	holders := l.Holders()
	if parties := len(holders) + len(l.Waiters); parties > 0 {
		look.Pings = make(map[string]PingState, parties)
	}
	of := func(process string) PingState {
		state, known := look.Pings[process] // several of its callers may stand there
		if !known && process != "" {
			state = ping(process)
		}
		return state
	}
	for _, parties := range [][]Participant{holders, l.Waiters} {
		for i := range parties {
			look.Pings[parties[i].Process] = of(parties[i].Process)
		}
	}
	holder := of(l.Process)
	look.Ping, look.PingErr = holder.Ping, holder.Err
	return look
}

// A PingState is the ping document of one process, or what is wrong with it; both are nil when
// there is none.
type PingState struct {
	Ping *Ping
	Err  *MalformedError
}

// PingStateOf understands the ping document of a process, nil for none.
func PingStateOf(raw bson.Raw) PingState {
	if raw == nil {
		return PingState{}
	}
	p, bad := ParsePing(raw)
	if bad != nil {
		return PingState{Err: bad}
	}
	return PingState{Ping: &p}
}

// Outcomes of queueing.
var (
	// ErrQueueFull is returned by Enter when there is no place for a request, see [Lock.RoomFor].
	ErrQueueFull = errors.New("the queue is full")
	// ErrPermitMismatch is matched by *PermitMismatchError.
	ErrPermitMismatch = errors.New("another limit")
	// ErrNoGrantStream is returned by GrantStream where the deployment has no change streams, or the
	// database has none.
	ErrNoGrantStream = errors.New("no stream of grants here")
)

// A PermitMismatchError says that a lock is in use with another number of permits than asked for.
type PermitMismatchError struct {
	Name     string
	Recorded int32 // 0: as an exclusive or shared lock
	Asked    int32 // likewise
}

func (e *PermitMismatchError) Error() string {
	return fmt.Sprintf("lock %q is in use %s, not %s; all who use it at a time must ask for the same",
		Printable(e.Name, 200), limitWords(e.Recorded), limitWords(e.Asked))
}

func limitWords(limit int32) string {
	if limit == 0 {
		return "as an exclusive or shared lock"
	}
	return fmt.Sprintf("as a semaphore of %d permits", limit)
}

// Is reports whether target is ErrPermitMismatch.
func (e *PermitMismatchError) Is(target error) bool { return target == ErrPermitMismatch }

// RoomFor reports whether the queue has a place for a request: fewer than MaxWaiters wait. A
// session that was queued before and comes back before a later one has a place of its own: fewer
// than twice MaxWaiters wait, which bounds the document.
func (l Lock) RoomFor(r Request) bool {
	later := func(p Participant) bool { return p.Since.After(r.Since) }
	if !r.Since.IsZero() && slices.ContainsFunc(l.Waiters, later) {
		return len(l.Waiters) < 2*MaxWaiters
	}
	return len(l.Waiters) < MaxWaiters
}

// Holders returns the holders of the lock, in the order in which they got it.
func (l Lock) Holders() []Participant {
	switch {
	case !l.Held:
		return nil
	case len(l.Sharers) > 0:
		return l.Sharers
	}
	return []Participant{{
		TS: l.TS, Process: l.Process, Who: l.Who, Why: l.Why, Takeover: l.Takeover, Since: l.When,
		Fence: l.Fence,
	}}
}

// GrantsOf returns what process holds of the lock, as grants.
func (l Lock) GrantsOf(process string) []Grant {
	var grants []Grant
	for _, p := range l.Holders() {
		if p.Process != process {
			continue
		}
		a := Grant{Session: Session{Name: l.Name, TS: p.TS}, Process: process, Fence: p.Fence}
		for _, told := range l.Grants {
			if told.TS == p.TS {
				a.Evidence = told.Evidence
			}
		}
		grants = append(grants, a)
	}
	return grants
}

// SessionsOf returns the sessions of process in the document: holders first, then waiters.
func (l Lock) SessionsOf(process string) []HeldSession {
	var sessions []HeldSession
	add := func(parties []Participant, waits bool) {
		for _, p := range parties {
			if p.Process == process {
				s := Session{Name: l.Name, TS: p.TS}
				sessions = append(sessions, HeldSession{Session: s, Waits: waits})
			}
		}
	}
	add(l.Holders(), false)
	add(l.Waiters, true)
	return sessions
}

// HeldBy returns the holder with that session.
func (l Lock) HeldBy(ts bson.ObjectID) (Participant, bool) { return find(l.Holders(), ts) }

// HeldAs reports whether that session holds the lock for that process.
func (l Lock) HeldAs(ts bson.ObjectID, process string) bool {
	p, ok := l.HeldBy(ts)
	return ok && p.Process == process
}

// WaitedBy returns the waiter with that session.
func (l Lock) WaitedBy(ts bson.ObjectID) (Participant, bool) { return find(l.Waiters, ts) }

func find(parties []Participant, ts bson.ObjectID) (Participant, bool) {
	for _, p := range parties {
		if p.TS == ts {
			return p, true
		}
	}
	return Participant{}, false
}
