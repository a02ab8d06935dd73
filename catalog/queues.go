package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxWaiters is the largest number of waiters in a lock document, see [Lock.RoomFor] for the
// exception. Further contenders wait inside their processes.
const MaxWaiters = 100

// MaxHolders is the largest number of sessions that hold one lock at a time, shared or by permits.
// Further sessions wait in the queue. Every grant rewrites and returns the whole document. A holder
// takes about 270 bytes, and 2.4 KB with the longest strings. So a thousand holders and a full
// queue stay far below the server's limit of 16 MiB.
const MaxHolders = 1000

// A Mode is the way to hold a lock. Only the modes Exclusive and Shared can be used with the same
// name.
type Mode string

// The modes, as they are stored in the documents.
const (
	// Exclusive allows one holder. The document has no mode, like a document of mongos.
	Exclusive Mode = ""
	// Shared allows up to MaxHolders shared holders at a time.
	Shared Mode = "shared"
	// Permit allows as many holders as the limit in the document, at most MaxHolders.
	Permit Mode = "permit"
)

// A Participant is a holder or a waiter in a lock document.
type Participant struct {
	TS      bson.ObjectID
	Process string
	Who     string
	Why     string
	Mode    Mode
	// Limit is the requested number of permits; zero in the other modes.
	Limit int32
	// Takeover is the recorded takeover time; zero when absent or out of bounds.
	Takeover time.Duration
	// Since is the server's clock when the waiter was queued or the lock was granted; zero when
	// unknown.
	Since time.Time
	// Fence is the holder's fence; zero for a waiter.
	Fence int64
}

// Queues has the operations of waiters. The queue is part of the lock document, so that the command
// that frees a lock also grants it to the next waiter.
type Queues interface {
	// Snapshots reads locks, the pings of their holders and waiters, and the server's clock. It
	// sends one command if the server supports that. The result omits locks without a document. It
	// contains a malformed document, which is not an error.
	Snapshots(ctx context.Context, names []string) (Looks, error)

	// HeldOrFree reads, of the locks in names, those that are free, held by process, or also in
	// lines. It skips malformed documents. A waiting process polls its grants with HeldOrFree. The
	// result may omit the informational fields of waiters.
	HeldOrFree(ctx context.Context, process string, names, lines []string) ([]Lock, error)

	// GrantStream opens a stream of the future grants to process. It returns ErrNoGrantStream if
	// the deployment or the database has no change streams.
	GrantStream(ctx context.Context, process string) (GrantStream, error)

	// EnterTransaction takes a free lock inside the transaction that ctx carries. No other session
	// can take the lock until the transaction ends. Then the lock is free. Errors:
	//   - ErrNoTransactions when ctx carries no transaction or the store does not support
	//     transactions;
	//   - ErrNotFree; the transaction is still active then;
	//   - other errors, such as a conflict, keep the driver's labels, so that the driver can run
	//     the transaction again.
	EnterTransaction(ctx context.Context, g Request) (Lock, error)
}

// LookAt reads one lock by [Queues.Snapshots]. It returns the zero Snapshot, without the server's
// clock, for a lock without a document.
func LookAt(ctx context.Context, store interface {
	Snapshots(ctx context.Context, names []string) (Looks, error)
}, name string) (Snapshot, error) {
	seen, err := store.Snapshots(ctx, []string{name})
	return seen[name], err
}

// An EnterMode is the behavior of Enter if the lock is not free.
type EnterMode int

// The modes of Enter.
const (
	// Queue waits at the end of the queue.
	Queue EnterMode = iota
	// Try neither waits nor overtakes waiters.
	Try
	// TryPlain takes the lock exclusively if the document does not exist, or is well formed and
	// free, without waiters and sharers. It sends one command on every server. For another document
	// Enter returns ErrNotFree, and a Snapshot shows the cause. The fence is not raised to the
	// clock, see SeedFence.
	TryPlain
)

// A Grant reports that a transition granted a lock to a session.
type Grant struct {
	Session
	Process string
	Fence   int64
	// Evidence is the reason of the eviction that led to the grant; empty without an eviction.
	Evidence string
}

// GrantStream is an open stream of grants. Next blocks until there are grants. It returns an error
// when ctx or the stream ends. Then the caller must close the stream. The stream does not contain
// grants before its opening: call [Queues.HeldOrFree] after opening a stream.
type GrantStream interface {
	Next(ctx context.Context) ([]Grant, error)
	Close(ctx context.Context)
}

// SnapshotOf returns the snapshot of a lock document with the pings of its holders and waiters. The
// function ping returns a process's ping.
func SnapshotOf(lock bson.Raw, ping func(process string) PingState) Snapshot {
	l, bad := ParseLock(lock)
	if bad != nil {
		return Snapshot{LockErr: bad}
	}
	return l.Shown(ping)
}

// Shown is [SnapshotOf] for a parsed document.
func (l Lock) Shown(ping func(process string) PingState) Snapshot {
	look := Snapshot{Lock: &l}
	holders := l.Holders()
	if parties := len(holders) + len(l.Waiters); parties > 0 {
		look.Pings = make(map[string]PingState, parties)
	}
	of := func(process string) PingState {
		state, known := look.Pings[process] // a process may have several sessions
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

// A PingState is a process's ping document, or the error if the document is malformed. Both are nil
// when the document does not exist.
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
	// ErrQueueFull is returned by Enter when the queue has no place for a request, see
	// [Lock.RoomFor].
	ErrQueueFull = errors.New("the queue is full")
	// ErrPermitMismatch is matched by *PermitMismatchError.
	ErrPermitMismatch = errors.New("another limit")
	// ErrNoGrantStream is returned by GrantStream if the deployment or the database has no change
	// streams.
	ErrNoGrantStream = errors.New("no stream of grants here")
)

// A PermitMismatchError reports that a lock is in use with another limit than the requested one.
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

// RoomFor reports whether the queue has a place for a request. A queue may have MaxWaiters waiters,
// or twice as many for a request that was queued before and returns ahead of a later waiter. These
// bounds limit the document's size.
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
