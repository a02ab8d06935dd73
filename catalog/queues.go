package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxWaiters is the largest number of waiters in a lock document. For an exception see
// [Lock.RoomFor]. The remaining contenders wait in their processes.
const MaxWaiters = 100

// MaxHolders is the largest number of sessions that hold one lock at a time, shared or by permits.
// Further sessions wait in the queue. The limit bounds the document, which every grant rewrites and
// returns. A holder takes about 270 bytes, or 2.4 KB with the longest strings. The server's limit
// is 16 MiB per document.
const MaxHolders = 1000

// A Mode is the way in which a session holds a lock. Exclusive and Shared can be used with the same
// name. A lock that is held by permits cannot be used in the other modes.
type Mode string

// The modes, as they are stored in the documents.
const (
	// Exclusive allows one holder. The document has no field mode, like a document of mongos.
	Exclusive Mode = ""
	// Shared allows at most MaxHolders holders at a time.
	Shared Mode = "shared"
	// Permit allows as many holders as the limit in the document, but at most MaxHolders.
	Permit Mode = "permit"
)

// A Participant is a holder or a waiter in a lock document.
type Participant struct {
	TS      bson.ObjectID
	Process string
	Who     string
	Why     string
	Mode    Mode
	// Limit is the requested number of permits; zero unless the mode is Permit.
	Limit int32
	// Takeover is the recorded takeover time; zero when absent or out of bounds.
	Takeover time.Duration
	// Since is the server's clock when the waiter was queued, or when the holder was granted the
	// lock. It is zero when unknown.
	Since time.Time
	// Fence is the holder's fence; zero for a waiter.
	Fence int64
}

// Queues has the operations of waiters. The lock document contains the queue, so the command that
// frees a lock also grants the lock to the next waiter.
type Queues interface {
	// Snapshots reads locks, the pings of their holders and waiters, and the server's clock. It
	// sends one command if the server supports that. The result has no entry for a lock without a
	// document. The entry for a malformed document has its error in LockErr.
	Snapshots(ctx context.Context, names []string) (Looks, error)

	// HeldOrFree reads a lock in names if it is free, if the given process holds it, or if its name
	// is also in always. It skips malformed documents. A process polls for its grants with
	// HeldOrFree. The result may omit who, why, since and takeoverMS of waiters.
	HeldOrFree(ctx context.Context, process string, names, always []string) ([]Lock, error)

	// GrantStream opens a stream of the future grants to process. It returns ErrNoGrantStream if
	// the deployment or the database has no change streams.
	GrantStream(ctx context.Context, process string) (GrantStream, error)

	// EnterTransaction acquires a free lock inside the transaction that ctx carries. No other
	// session can acquire the lock until the transaction ends. After the transaction the lock is
	// free. Errors:
	//   - ErrNoTransactions when ctx carries no transaction, or the store does not support
	//     transactions;
	//   - ErrNotFree; the transaction remains usable;
	//   - other errors, such as a conflict; they have the driver's labels, so that the driver can
	//     run the transaction again.
	EnterTransaction(ctx context.Context, g Request) (Lock, error)
}

// LookAt returns the snapshot of one lock. For a lock without a document it returns the zero
// Snapshot.
func LookAt(ctx context.Context, store interface {
	Snapshots(ctx context.Context, names []string) (Looks, error)
}, name string) (Snapshot, error) {
	seen, err := store.Snapshots(ctx, []string{name})
	return seen[name], err
}

// An EnterMode selects what Enter does if the lock is not free.
type EnterMode int

// The modes of Enter.
const (
	// Queue adds the request to the end of the queue.
	Queue EnterMode = iota
	// Try makes Enter return ErrNotFree instead of waiting. It does not overtake waiters.
	Try
	// TryPlain is Try for an exclusive request. It sends one command on every server. It acquires
	// the lock if the document does not exist, or is well formed, free, and without waiters and
	// sharers. Otherwise Enter returns ErrNotFree, and a Snapshot shows the cause. TryPlain raises
	// the fence by 1 only. To raise the fence to the clock, use SeedFence.
	TryPlain
)

// A Grant reports that a transition granted a lock to a session.
type Grant struct {
	Session
	Process string
	Fence   int64
	// Evidence is the reason for the eviction that led to the grant; empty without an eviction.
	Evidence string
}

// GrantStream is an open stream of grants. Next waits for grants and returns them. It returns an
// error when ctx is done or the stream has ended. The caller must then close the stream. The stream
// does not contain earlier grants: after opening a stream, call [Queues.HeldOrFree].
type GrantStream interface {
	Next(ctx context.Context) ([]Grant, error)
	Close(ctx context.Context)
}

// SnapshotOf returns the snapshot of a lock document. It calls the function ping for the ping of
// each holder and waiter.
func SnapshotOf(lock bson.Raw, ping func(process string) PingState) Snapshot {
	l, bad := ParseLock(lock)
	if bad != nil {
		return Snapshot{LockErr: bad}
	}
	return l.Shown(ping)
}

// Shown is [SnapshotOf] for a parsed document.
func (l Lock) Shown(ping func(process string) PingState) Snapshot {
	snapshot := Snapshot{Lock: &l}
	holders := l.Holders()
	if participants := len(holders) + len(l.Waiters); participants > 0 {
		snapshot.Pings = make(map[string]PingState, participants)
	}
	of := func(process string) PingState {
		state, known := snapshot.Pings[process] // a process may have several sessions
		if !known && process != "" {
			state = ping(process)
		}
		return state
	}
	for _, participants := range [][]Participant{holders, l.Waiters} {
		for i := range participants {
			snapshot.Pings[participants[i].Process] = of(participants[i].Process)
		}
	}
	holder := of(l.Process)
	snapshot.Ping, snapshot.PingErr = holder.Ping, holder.Err
	return snapshot
}

// A PingState is a process's ping document, or the error of a malformed document. Both are nil when
// there is no document.
type PingState struct {
	Ping *Ping
	Err  *MalformedError
}

// PingStateOf parses a ping document. raw is nil if the document does not exist.
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

// Errors of queueing.
var (
	// ErrQueueFull is returned by Enter when the queue has no room for the request, see
	// [Lock.RoomFor].
	ErrQueueFull = errors.New("the queue is full")
	// ErrPermitMismatch is matched by *PermitMismatchError.
	ErrPermitMismatch = errors.New("another limit")
	// ErrNoGrantStream is returned by GrantStream if the deployment or the database has no change
	// streams.
	ErrNoGrantStream = errors.New("no stream of grants here")
)

// A PermitMismatchError reports that a lock is in use in another mode or with another number of
// permits.
type PermitMismatchError struct {
	Name     string
	Recorded int32 // 0 for an exclusive or shared lock
	Asked    int32 // 0 for an exclusive or shared lock
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

// RoomFor reports whether the queue has room for a request. The queue has room for MaxWaiters
// waiters. It has room for twice as many if the request was queued before, and returns to its place
// ahead of a later waiter.
func (l Lock) RoomFor(r Request) bool {
	later := func(p Participant) bool { return p.Since.After(r.Since) }
	if !r.Since.IsZero() && slices.ContainsFunc(l.Waiters, later) {
		return len(l.Waiters) < 2*MaxWaiters
	}
	return len(l.Waiters) < MaxWaiters
}

// Holders returns the holders of the lock, in the order of their grants.
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

// GrantsOf returns the sessions of process that hold the lock, as grants.
func (l Lock) GrantsOf(process string) []Grant {
	var grants []Grant
	for _, p := range l.Holders() {
		if p.Process != process {
			continue
		}
		a := Grant{Session: Session{Name: l.Name, TS: p.TS}, Process: process, Fence: p.Fence}
		for _, recorded := range l.Grants {
			if recorded.TS == p.TS {
				a.Evidence = recorded.Evidence
			}
		}
		grants = append(grants, a)
	}
	return grants
}

// SessionsOf returns the sessions of process in the document: first as a holder, then as a waiter.
func (l Lock) SessionsOf(process string) []HeldSession {
	var sessions []HeldSession
	add := func(participants []Participant, waits bool) {
		for _, p := range participants {
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

// HeldBy returns the holder with the given session.
func (l Lock) HeldBy(ts bson.ObjectID) (Participant, bool) { return find(l.Holders(), ts) }

// HeldAs reports whether the given session holds the lock for the given process.
func (l Lock) HeldAs(ts bson.ObjectID, process string) bool {
	p, ok := l.HeldBy(ts)
	return ok && p.Process == process
}

// WaitedBy returns the waiter with the given session.
func (l Lock) WaitedBy(ts bson.ObjectID) (Participant, bool) { return find(l.Waiters, ts) }

func find(participants []Participant, ts bson.ObjectID) (Participant, bool) {
	for _, p := range participants {
		if p.TS == ts {
			return p, true
		}
	}
	return Participant{}, false
}
