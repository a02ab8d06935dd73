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
// [Lock.RoomFor]. If the queue is full, Enter returns ErrQueueFull.
const MaxWaiters = 100

// MaxHolders is the largest number of sessions that hold one lock at a time, in mode Shared or
// Permit. Further sessions wait in the queue. The limit bounds the size of the document, which
// every grant rewrites and returns. A holder takes about 270 bytes, or 2.4 KB with the longest
// strings. The server allows 16 MiB per document.
const MaxHolders = 1000

// A Mode is the way in which a session holds a lock. Exclusive and Shared requests can be queued
// for the same lock. While a lock has Permit sessions, requests in the other modes fail. While a
// lock has sessions in the other modes, Permit requests fail.
type Mode string

// The modes, as they are stored in the documents.
const (
	// Exclusive allows one holder. The field mode is absent, as in a document of mongos.
	Exclusive Mode = ""
	// Shared allows at most MaxHolders holders at a time.
	Shared Mode = "shared"
	// Permit allows at most as many holders as the field limit of the document, and at most
	// MaxHolders.
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
	// Since is the server's clock when the waiter was queued, or when the holder was granted the lock.
	// It is zero when unknown.
	Since time.Time
	// Fence is the holder's fence; zero for a waiter.
	Fence int64
}

// Queues is the group of operations for waiters. The lock document contains the queue. So one
// command can free a lock and grant it to the next waiter.
type Queues interface {
	// Snapshots reads locks, the pings of their holders and waiters, and the server's clock. It sends
	// one command if the server can join collections. A lock without a document has no entry in the
	// result. For a malformed document, the entry contains LockErr.
	Snapshots(ctx context.Context, names []string) (Looks, error)

	// HeldOrFree returns each lock in names that is free, that the process holds, or that is also in
	// always. It skips malformed documents. A process polls for its grants with HeldOrFree. The
	// result may omit who, why, since and takeoverMS of waiters.
	HeldOrFree(ctx context.Context, process string, names, always []string) ([]Lock, error)

	// GrantStream opens a stream of the future grants to a process. If the deployment or the database
	// has no change streams, it returns ErrNoGrantStream.
	GrantStream(ctx context.Context, process string) (GrantStream, error)

	// EnterTransaction acquires a free lock inside the transaction that ctx carries. Until the
	// transaction ends, no other session can acquire the lock. After the transaction, the lock is
	// free. Errors:
	//   - ErrNoTransactions if ctx carries no transaction, or if the store does not support
	//     transactions;
	//   - ErrNotFree if the lock has a holder or a waiter; the transaction remains usable;
	//   - any other error, such as a conflict, with the error labels of the driver, so that
	//     the driver can run the transaction again.
	EnterTransaction(ctx context.Context, g Request) (Lock, error)
}

// LookAt returns the snapshot of one lock. If the document does not exist, it returns the zero
// Snapshot.
func LookAt(ctx context.Context, store interface {
	Snapshots(ctx context.Context, names []string) (Looks, error)
}, name string) (Snapshot, error) {
	seen, err := store.Snapshots(ctx, []string{name})
	return seen[name], err
}

// An EnterMode selects the behavior of Enter for a lock that is not free.
type EnterMode int

// The modes of Enter.
const (
	// Queue makes Enter add the request to the queue.
	Queue EnterMode = iota
	// Try makes Enter return ErrNotFree. Enter also returns ErrNotFree if the lock is free but has
	// earlier waiters. For an exclusive request, the store may use TryPlain first, so apply
	// SeedFence.
	Try
	// TryPlain is Try for an exclusive request, with one command on every server. Enter acquires the
	// lock if the document does not exist. It also acquires the lock if the document is well formed,
	// free, and without waiters and sharers. In all other cases Enter returns ErrNotFree, and a
	// Snapshot shows the reason. The acquisition increments the fence. To set the
	// fence to the server's time in milliseconds, apply SeedFence.
	TryPlain
)

// A Grant reports that a transition granted a lock to a session.
type Grant struct {
	Session
	Process string
	Fence   int64
	// Evidence is the reason for the eviction that led to the grant; empty if there was no eviction.
	Evidence string
}

// GrantStream is an open stream of grants. Next waits for grants and returns them. It may return a
// grant again. If ctx is done or the stream has ended, Next returns an error, and the caller must
// close the stream. The stream need not contain the grants that were made before its opening. To
// find them, call [Queues.HeldOrFree] after opening the stream.
type GrantStream interface {
	Next(ctx context.Context) ([]Grant, error)
	Close(ctx context.Context)
}

// SnapshotOf returns the snapshot of a lock document. It calls the given function to get the ping
// of each holder and waiter.
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

// A PingState is a process's ping document, or the error of a malformed document. If there is no
// document, both fields are nil.
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
	// ErrQueueFull is returned by Enter if the queue has no room for the request, see [Lock.RoomFor].
	ErrQueueFull = errors.New("the queue is full")
	// ErrPermitMismatch is matched by *PermitMismatchError.
	ErrPermitMismatch = errors.New("another limit")
	// ErrNoGrantStream is returned by GrantStream if the deployment or the database has no change
	// streams.
	ErrNoGrantStream = errors.New("no stream of grants here")
)

// A PermitMismatchError reports that a request does not fit the present use of the lock. Either the
// numbers of permits differ, or only one of the two is for a semaphore.
type PermitMismatchError struct {
	Name     string
	Recorded int32 // 0 for an exclusive or shared lock
	Asked    int32 // 0 for an exclusive or shared lock
}

func (e *PermitMismatchError) Error() string {
	return fmt.Sprintf("lock %q is in use %s, not %s; all its users must request the same",
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
// waiters. It has room for twice as many if the request returns to its old place, ahead of a waiter
// that was queued later.
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

// GrantsOf returns one grant for each session with which the process holds the lock.
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

// SessionsOf returns the sessions of a process in the document, first as a holder, then as a
// waiter.
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
