package catalog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The collections of the locks and of the pings. MongoDB's own lock manager uses collections of the
// same names, in the database named config.
const (
	LocksCollection = "locks"
	PingsCollection = "lockpings"
)

// A Catalog stores locks and the pings of processes. It is safe for concurrent use. Every method
// returns when its context is done, or when a command exceeds the time limit of the implementation.
// Every method may return an error that matches ErrUnavailable, or a *PrivilegeError.
type Catalog interface {
	Locks
	Pings
	Queues
	Transactions
}

// Locks is the group of operations on lock documents. Every operation parses the document with
// [ParseLock].
type Locks interface {
	// Apply applies a transition to one lock document atomically. The results are valid only if the
	// error is nil. For Enter, Confirm, SeedFence and Break, Apply returns the document after the
	// change. For Leave, Evict and GrantNext, Apply returns the grants that the transition made. It
	// may also return a grant that an earlier transition made in the same millisecond. If a Leave
	// has queued the request in its field Enqueue, Apply also returns the document after the
	// change.
	//
	// Only Enter creates a document. If the document is missing, every other transition returns
	// ErrNoMatch. If ParseLock rejects the document, Apply returns a *MalformedError and changes
	// nothing, with three exceptions:
	//   - Enter with TryPlain returns ErrNotFree.
	//   - Leave frees a lock that its session holds alone, without waiters.
	//   - Break with a zero TS ignores the field ts of the document.
	//
	// Other errors: the errors of the transition, ErrUnknownOutcome.
	Apply(ctx context.Context, t Transition) (Lock, []Grant, error)

	// Read returns the lock document. It uses the server's strongest read concern, which is
	// linearizable on a replica set. Errors: ErrNotFound, *MalformedError.
	Read(ctx context.Context, name string) (Lock, error)

	// List yields every lock document, with the pings of its holders and waiters, in the order of the
	// lock names. If waited is set, List yields only documents with waiters. For a malformed document,
	// List yields a *MalformedError and continues. Any other error ends the listing.
	List(ctx context.Context, waited bool) iter.Seq2[Snapshot, error]
}

// Pings is the group of operations on ping documents. It also contains Hello and the operations
// that maintain the two collections.
type Pings interface {
	// Ping writes b to the ping document of b.Process, and sets the field ping to the server's clock.
	// If the document is missing, Ping inserts it. An existing document must meet these conditions:
	//   - It has no field condemned.
	//   - The field seq is less than b.Seq. So a delayed ping does not overwrite a later one.
	//   - The field local is in b.Mine, or b.Mine is empty.
	//
	// Ping returns the document after the write. If the server applies the same ping twice, the second
	// reply is a success too. Ping sends one command. If the document does not meet the conditions,
	// Ping also reads the document. Errors:
	//   - *CondemnedError if the process was condemned;
	//   - *TwinError if another process wrote the document;
	//   - *MalformedError if ParsePing rejects the document;
	//   - ErrNoMatch if the document changed between the command and the read, so that Ping
	//     cannot determine which condition failed;
	//   - ErrUnknownOutcome.
	Ping(ctx context.Context, b Heartbeat) (Pinged, error)

	// ApplyPing applies a change to one ping document atomically. Errors: the errors of the change,
	// ErrUnknownOutcome.
	ApplyPing(ctx context.Context, c PingChange) error

	// Held returns the sessions of a process that hold a lock or wait for one, in the order of the
	// lock names. It skips malformed documents.
	Held(ctx context.Context, process string) ([]HeldSession, error)

	// OldPings returns the ping documents whose last ping is earlier than the given time, by the
	// server's clock. It returns at most MaxOldPings documents, in any order.
	OldPings(ctx context.Context, before time.Time) ([]OldPing, error)

	// Prune deletes the given ping documents and returns the number of deleted documents. It keeps the
	// document of a process that has pinged since the document was read. It also keeps the document of
	// a process that holds a lock or waits for one.
	Prune(ctx context.Context, old []OldPing) (int, error)

	// PruneLocks deletes each lock document that meets all these conditions:
	//   - The lock is free and has no waiters.
	//   - The document has a rev, so this module wrote it.
	//   - The last acquisition, by the server's clock, is earlier than the given time.
	//   - The fence is less than the given time in milliseconds. The first fence after the
	//     deletion is the server's clock in milliseconds, so it is larger than this fence.
	//   - The document has not changed since PruneLocks read it.
	//
	// PruneLocks reads at most limit documents, in the order of the lock names. The limit must be
	// positive. A call skips the names up to and including the given name. The next call gets the name
	// that this call returned. At the end of the collection, the returned name is "".
	PruneLocks(ctx context.Context, before time.Time, after string, limit int) (
		pruned int, next string, err error)

	// Prepare creates the indexes of both collections. The indexes of the collection locks are on the
	// processes of holders and waiters. The index of the collection lockpings is on the field ping.
	// Several processes may call Prepare concurrently. Prepare returns warnings for the operator, for
	// example about a TTL index that would delete current pings.
	Prepare(ctx context.Context) (warnings []string, err error)

	// Hello returns the kind, the version and the clock of the server.
	Hello(ctx context.Context) (Server, error)
}

// Transactions runs transactions on the condition that a session holds a lock.
type Transactions interface {
	// Transact runs a transaction that commits only while the session s holds its lock. Inside the
	// transaction, it calls the given function, and writes the lock document on the condition that s
	// is a holder. If a takeover comes first, the transaction has no effect. If the transaction writes
	// the lock document first, a takeover waits until the transaction ends.
	//
	// In the first try, Transact calls the function before it writes the lock document, so that other
	// writers do not wait for the function. After a conflict, Transact tries again and writes the lock
	// document first. Other writers then wait. So conflicts over the lock document cause at most two
	// calls of the function. If the function returns a transient error of the store, Transact also
	// tries again.
	//
	// The context that Transact passes to the function carries the transaction. If the function
	// applies Renew or PutFirst for s with that context, the change is part of the transaction.
	// Transact returns when ctx is done. Errors:
	//   - an error of the function, unchanged, if it is not transient;
	//   - ErrNoMatch if s does not hold the lock;
	//   - *MalformedError;
	//   - ErrNoTransactions if the store does not support transactions; the function is not
	//     called;
	//   - ErrUnknownOutcome if the outcome of the commit is unknown.
	Transact(ctx context.Context, s Session, run func(ctx context.Context) error) error
}

// A Session identifies one acquisition of one lock. Every acquisition has a new TS. A write for a
// session changes only a document that contains this session.
type Session struct {
	Name string
	TS   bson.ObjectID
}

// On returns the name of the lock.
func (s Session) On() string { return s.Name }

// Compare orders sessions by name, then by TS.
func (s Session) Compare(as Session) int {
	return cmp.Or(cmp.Compare(s.Name, as.Name), bytes.Compare(s.TS[:], as.TS[:]))
}

// A Request contains the values that an acquisition writes.
type Request struct {
	Session
	Process  string
	Who      string
	Why      string
	Takeover time.Duration // written as takeoverMS
	Mode     Mode
	Limit    int32 // in mode Permit the number of permits, at least 1
	// Since is zero for a new request. If a request was queued and has lost its place, Since is the
	// time when it was first queued. Enter then inserts the request before the waiters that were
	// queued after Since.
	Since time.Time
}

// Check returns an error if the mode is Permit and the limit is less than 1.
func (r Request) Check() error {
	if r.Mode == Permit && r.Limit < 1 {
		return fmt.Errorf("a grant of mode %q has the limit %d; it must be at least 1", r.Mode, r.Limit)
	}
	return nil
}

// A Holder identifies a holder or a waiter that a contender watched and may evict.
type Holder struct {
	Session
	// Process is the process id, or "" if the document contains none.
	Process string
	// Renewal is set if the reason for the eviction is an expired lease. It is the number of the last
	// renewal that the contender read. A later renewal prevents the eviction.
	Renewal int64
	// Waits is set for a waiter. A waiter that has become a holder is not evicted.
	Waits bool
}

// Watched reports whether the lock still has this holder. If Renewal is not zero, the last renewal
// of the holder's lease must also have that number.
func (h Holder) Watched(l Lock) bool {
	if !l.HeldAs(h.TS, h.Process) {
		return false
	}
	lease, _ := l.LeaseOf(h.TS)
	return h.Renewal == 0 || lease.Number == h.Renewal
}

// A HeldSession is a session that holds a lock or waits for it.
type HeldSession struct {
	Session
	// Waits is set if the session is queued and does not hold the lock.
	Waits bool
}

// Compare orders by session. A holder comes before a waiter with the same session.
func (s HeldSession) Compare(as HeldSession) int {
	later := func(h HeldSession) int {
		if h.Waits {
			return 1
		}
		return 0
	}
	return cmp.Or(s.Session.Compare(as.Session), later(s)-later(as))
}

// A Heartbeat is one ping of a process. It contains the values to write and the conditions that the
// ping document must meet.
type Heartbeat struct {
	Process string
	// Seq is the number of the ping. A process numbers its pings 1, 2, 3 and so on. After a failed
	// ping, the next ping has a new number.
	Seq      int64
	Local    time.Time     // the process's own clock; stored in milliseconds
	Takeover time.Duration // written as takeoverMS
	Interval time.Duration // written as pingMS
	// Mine contains the local times of earlier pings that may have written the document: the last
	// acknowledged ping and the pings after it. If the document has another local time, a twin wrote
	// it. A twin is another process with the same id. If Mine is empty, as for the first ping of a
	// process id, Ping does not compare local times.
	Mine []time.Time
}

// Pinged is the ping document after a ping.
type Pinged struct {
	Ping
	// Inserted is set if the ping inserted the document. If an earlier ping was acknowledged, the
	// document has been deleted since that ping.
	Inserted bool
}

// MaxOldPings is the largest number of documents that a call of [Pings.OldPings] returns.
const MaxOldPings = 10_000

// An OldPing is the ping document of a process that has not pinged for a long time.
type OldPing struct {
	Process  string
	At       time.Time     // field ping: the server's clock at the last ping
	Interval time.Duration // field pingMS; zero when absent or out of bounds
}

// OldPingOf parses a ping document. If the _id is not a string or the field ping is not a Date, ok
// is false. The other fields may be invalid.
func OldPingOf(doc bson.Raw) (p OldPing, ok bool) {
	id, isText := doc.Lookup("_id").StringValueOK()
	at := doc.Lookup("ping")
	p = OldPing{Process: id, At: date(at), Interval: bounded(doc.Lookup("pingMS"))}
	return p, isText && at.Type == bson.TypeDateTime
}

// A Condemnation is the mark in the ping document of a process that a contender declared dead.
type Condemnation struct {
	By       string
	At       time.Time // the server's clock at the mark; ignored in a write
	Evidence string
}

// A Sight records the time at which a contender read the last ping of a silent process. Later
// contenders measure the silence from this time, see package takeover.
type Sight struct {
	Seq   int64
	At    time.Time // the server's clock, as the contender read it
	Local time.Time // the contender's own clock at the reply to the read
	By    string    // the contender's process id; empty for the zero Sight
}

// A Snapshot is the result of one read of a lock and of the pings of its holders and waiters.
type Snapshot struct {
	// Lock is nil if the document does not exist or is malformed. If it is malformed, LockErr is set.
	// List yields a snapshot without a lock only together with an error.
	Lock    *Lock
	LockErr *MalformedError
	// Ping is the ping document of Lock.Process. Ping is nil if Lock.Process is empty, or if the ping
	// document does not exist or is malformed. If it is malformed, PingErr is set.
	Ping    *Ping
	PingErr *MalformedError
	// Pings contains the ping of every holder and waiter, by process id.
	Pings map[string]PingState
	// ServerTime is the server's clock at the read; zero when unknown.
	ServerTime time.Time
	// Primary identifies the election term of the primary, or the process of a standalone server. It
	// is empty in the results of List, and after a read that does not return the term.
	Primary string
}

// Looks is the result of [Queues.Snapshots]: the snapshots of several locks, by lock name.
type Looks = map[string]Snapshot

// Kind is the kind of a MongoDB deployment.
type Kind string

// The kinds of deployment.
const (
	Standalone Kind = "standalone"
	ReplicaSet Kind = "replica set"
	Mongos     Kind = "mongos"
	FerretDB   Kind = "ferretdb"
	Memory     Kind = "memory"
)

// A Server describes a server, see [Pings.Hello].
type Server struct {
	Kind    Kind
	Version string // as reported by the server, such as "7.0.5"
	// Product is the name of the server's product. It is empty for MongoDB and FerretDB. This module
	// supports no other product.
	Product string
	// Front is set for the embedded server, which is a FerretDB behind a proxy of this module.
	Front bool
	// ConfigServer is set for a mongod with --configsvr. On a config server, MongoDB's own lock
	// manager uses the same collections, with a takeover time of 15 minutes.
	ConfigServer bool
	// Time is the server's clock. It is zero behind a mongos, because the clock of a mongos differs
	// from the clock of the shards.
	Time time.Time
	// Primary identifies the election term of the primary, or the process of a standalone server. It
	// is empty behind a mongos.
	Primary string
	// Transactions, ChangeStreams and PipelineUpdates report whether the server supports these
	// features in the configured database.
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}
