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

// Names of the collections. mongos uses the same names in database config.
const (
	LocksCollection = "locks"
	PingsCollection = "lockpings"
)

// Catalog is the whole store. It is safe for concurrent use. It parses every lock document with
// [ParseLock]. Every method returns when its context is done. A method also returns when one
// command has reached the implementation's time limit.
type Catalog interface {
	Locks
	Pings
	Queues
	Transactions
}

// Locks has the operations of contenders, holders and operators.
type Locks interface {
	// Apply applies a transition to one lock document atomically. Enter, Confirm, SeedFence and
	// Break return the document after the change. Leave, Evict and GrantNext return the new grants.
	// They may also return an earlier grant that was made in the same millisecond. The results are
	// valid only if the error is nil. Only Enter creates a document. Every other transition returns
	// ErrNoMatch for a missing document. Errors: those of the transition, *MalformedError,
	// ErrUnknownOutcome.
	//
	// Apply does not change a document that ParseLock rejects, and returns a *MalformedError. There
	// are three exceptions:
	//   - Enter with TryPlain returns ErrNotFree.
	//   - Leave removes its session from a damaged document.
	//   - Break without a session ignores the recorded session.
	Apply(ctx context.Context, t Transition) (Lock, []Grant, error)

	// Read returns the lock document. It uses the server's strongest read concern: linearizable on
	// a replica set. Errors: ErrNotFound, *MalformedError.
	Read(ctx context.Context, name string) (Lock, error)

	// List yields every lock document, with the pings of its processes, in the order of names. If
	// waited is set, it yields only documents with waiters. It yields a malformed document as a
	// *MalformedError and continues. Every other error ends the listing.
	List(ctx context.Context, waited bool) iter.Seq2[Snapshot, error]
}

// Pings has the operations on ping documents, the housekeeping of both collections, and Hello.
type Pings interface {
	// Ping updates the document of b.Process with b and sets the field ping to the server's clock.
	// It inserts a missing document. The update matches the document if these conditions hold:
	//   - It has no field condemned.
	//   - Its seq is less than b.Seq. So a delayed ping does not match after a later one.
	//   - Its local is in b.Mine, or b.Mine is empty.
	//
	// Ping returns the document after the update. If the server applied the same ping twice, the
	// second reply is a success too. Ping sends one command. If the document does not match, it
	// also reads the document. Errors:
	//   - *CondemnedError when the process was condemned;
	//   - *TwinError when another process wrote the document;
	//   - *MalformedError for a seq that is not a number;
	//   - ErrNoMatch when the document changed between the command and the read; the next ping
	//     returns a definite result;
	//   - ErrUnknownOutcome.
	Ping(ctx context.Context, b Heartbeat) (Pinged, error)

	// ApplyPing changes one ping document in one command. Errors: those of the change,
	// ErrUnknownOutcome.
	ApplyPing(ctx context.Context, c PingChange) error

	// Held returns the sessions of process that hold or wait for a lock, in the order of names. It
	// skips malformed documents.
	Held(ctx context.Context, process string) ([]HeldSession, error)

	// OldPings returns the documents of the processes whose last ping, by the server's clock, was
	// earlier than the given time. It returns at most MaxOldPings documents, in any order.
	OldPings(ctx context.Context, before time.Time) ([]OldPing, error)

	// Prune deletes the ping documents in old, and returns the number of deleted documents. It
	// keeps a document that has changed since it was read. It also keeps the document of a process
	// that holds a lock or waits for one.
	Prune(ctx context.Context, old []OldPing) (int, error)

	// PruneLocks deletes lock documents that meet all these conditions:
	//   - The lock is free and has no waiters.
	//   - The last acquisition, by the server's clock, was earlier than the parameter before.
	//   - The fence is less than that time in milliseconds. So the first fence of a new document,
	//     which is the server's clock, is larger.
	//   - The document has not changed since it was read.
	//
	// PruneLocks reads at most limit documents, in the order of names. It begins with the first
	// name greater than the parameter after. To continue, the caller passes the result next for
	// that parameter. At the end the result next is "".
	PruneLocks(ctx context.Context, before time.Time, after string, limit int) (
		pruned int, next string, err error)

	// Prepare creates the indexes: on locks for the processes of holders and waiters, and on
	// lockpings for the field ping. With these indexes, reads of held locks do not become slower as
	// free lock documents accumulate. Many processes may run Prepare concurrently. It returns
	// warnings for the operator, for example about a TTL index that would delete current pings.
	Prepare(ctx context.Context) (warnings []string, err error)

	// Hello returns the kind, the version and the clock of the server.
	Hello(ctx context.Context) (Server, error)
}

// Transactions has an operation that runs a transaction under a held lock.
type Transactions interface {
	// Transact calls the function run inside a transaction of the store. The transaction also
	// writes the lock document, with a filter that requires s among the holders. There are two
	// cases:
	//   - The transaction commits while s holds the lock. A takeover waits for the end of the
	//     transaction.
	//   - A takeover came first. The transaction has no effect.
	//
	// The first try writes the lock document after run, so that other writers do not wait for run.
	// After a conflict Transact tries again, and writes the lock document before run. Then other
	// writers wait. So conflicts over the lock document cause at most two calls of run.
	//
	// The context of run carries the transaction. Renew and PutFirst of s with that context are
	// part of the transaction. Transact returns when ctx is done. Errors: those of run, unchanged;
	// ErrNoMatch when s does not hold the lock; ErrNoTransactions, before run is called;
	// ErrUnknownOutcome when the outcome of the commit is unknown.
	Transact(ctx context.Context, s Session, run func(ctx context.Context) error) error
}

// A Session identifies one acquisition of one lock. Every conditional write contains the session.
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

// A Request has the fields that an acquisition writes.
type Request struct {
	Session
	Process  string
	Who      string
	Why      string
	Takeover time.Duration // written as takeoverMS
	Mode     Mode
	Limit    int32 // in mode Permit the number of permits, at least 1
	// Since is zero for a new request. For a request that lost its place in the queue, Since is the
	// time when it was first queued. Enter inserts such a request before the waiters that were
	// queued after Since.
	Since time.Time
}

// Check returns an error for a permit whose limit is less than 1.
func (r Request) Check() error {
	if r.Mode == Permit && r.Limit < 1 {
		return fmt.Errorf("a grant of mode %q has the limit %d; it must be at least 1", r.Mode, r.Limit)
	}
	return nil
}

// A Holder identifies a holder or a waiter that a contender watched and may evict.
type Holder struct {
	Session
	// Process is the holder's process id; empty when the document does not contain it.
	Process string
	// Renewal is the number of the last lease renewal that the contender read. A later renewal
	// prevents the eviction. Renewal is zero when the lease is not the reason for the eviction.
	Renewal int64
	// Waits is set for a waiter. A waiter that was granted the lock meanwhile is not evicted.
	Waits bool
}

// Watched reports whether the lock still has this holder. If Renewal is not zero, the lease must
// still have that number.
func (h Holder) Watched(l Lock) bool {
	if !l.HeldAs(h.TS, h.Process) {
		return false
	}
	lease, _ := l.LeaseOf(h.TS)
	return h.Renewal == 0 || lease.Number == h.Renewal
}

// A HeldSession is one session of a process in a lock document.
type HeldSession struct {
	Session
	// Waits is set for a waiter: the session is queued and does not hold the lock.
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

// A Heartbeat has the fields that a ping writes, and the conditions on the document.
type Heartbeat struct {
	Process string
	// Seq is the number of the ping. The pings of a process id have the numbers 1, 2, 3 and so on.
	// A ping that is sent after a failed one has a new number.
	Seq      int64
	Local    time.Time     // the process's own clock; milliseconds are written
	Takeover time.Duration // written as takeoverMS
	Interval time.Duration // written as pingMS
	// Mine contains the Local of the last acknowledged ping and of every later ping, because each
	// of these may have written the document. A document with another local time belongs to a twin,
	// whatever its number. If Mine is empty, as for the first ping of a process id, only the
	// numbers are compared.
	Mine []time.Time
}

// Pinged is the ping document after a ping.
type Pinged struct {
	Ping
	// Inserted is set when there was no document before the ping. If an earlier ping was
	// acknowledged, this means that its document was deleted.
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

// OldPingOf parses an old ping document. ok is false if the document has no process id or no date.
// Other fields may be invalid.
func OldPingOf(raw bson.Raw) (p OldPing, ok bool) {
	doc := fieldsOf(raw)
	id, isText := doc.lookup("_id").StringValueOK()
	at := doc.lookup("ping")
	p = OldPing{Process: id, At: date(at), Interval: bounded(doc.lookup("pingMS"))}
	return p, isText && at.Type == bson.TypeDateTime
}

// A Condemnation marks a process that another process declared dead.
type Condemnation struct {
	By       string
	At       time.Time // the server's clock; set only when read
	Evidence string
}

// A Sight is the record of a contender that read the last ping of a silent process. Later
// contenders count the silence from this record, see package takeover.
type Sight struct {
	Seq   int64
	At    time.Time // the server's clock, as the contender read it
	Local time.Time // the contender's own clock when the reply arrived
	By    string    // the contender's process id; empty for the zero Sight
}

// A Snapshot is the result of one read of a lock and its pings.
type Snapshot struct {
	// Lock is nil when the document does not exist or is malformed, see LockErr. In the results of
	// List it is never nil.
	Lock    *Lock
	LockErr *MalformedError
	// Ping is the holder's ping document. It is nil when the document does not exist, when it is
	// malformed (see PingErr), and when the lock document has no process.
	Ping    *Ping
	PingErr *MalformedError
	// Pings has the pings of all holders and waiters by process id.
	Pings map[string]PingState
	// ServerTime is the server's clock at the read; zero when unknown.
	ServerTime time.Time
	// Primary names the server's term: the election id, or the start of a standalone process. It is
	// empty in the results of List, and when the read does not return the term.
	Primary string
}

// Looks has the snapshots of several locks, by name. They are the result of one read.
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

// A Server is the result of Hello.
type Server struct {
	Kind    Kind
	Version string // as reported by the server, such as "7.0.5"
	// Product names a server that is neither MongoDB nor FerretDB. Such a server is refused.
	Product string
	// Front is set for the embedded server, a FerretDB behind a proxy of this module.
	Front bool
	// ConfigServer is set for a mongod with --configsvr. MongoDB's own lock manager uses the same
	// collections on such a server, with a takeover time of 15 minutes.
	ConfigServer bool
	// Time is the server's clock. It is zero behind a mongos, whose clock is not the clock of the
	// shards.
	Time time.Time
	// Primary names the primary's term, or the start of a standalone process.
	Primary string
	// Transactions, ChangeStreams and PipelineUpdates report whether the configured database
	// supports these features.
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}
