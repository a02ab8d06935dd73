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

// Names of the collections in the configured database. mongos uses the same names.
const (
	LocksCollection = "locks"
	PingsCollection = "lockpings"
)

// Catalog is the whole store. It reads every lock document with [ParseLock]. It is safe for
// concurrent use. Every method returns when its context is done, or when one command has reached
// the implementation's limit.
type Catalog interface {
	Locks
	Pings
	Queues
	Transactions
}

// Locks has the operations of contenders, holders and operators.
type Locks interface {
	// Apply carries out a transition of one lock document in one step. Enter, Confirm, SeedFence
	// and Break return the document after the change. Leave, Evict and GrantNext return the grants
	// of the change. They may also return an earlier grant of the same millisecond. After an error
	// the results mean nothing. Only Enter creates a document. Every other transition returns
	// ErrNoMatch for a missing one. Errors: those of the transition, *MalformedError,
	// ErrUnknownOutcome.
	//
	// A document that ParseLock rejects stays unchanged and is reported as a *MalformedError. There
	// are three exceptions:
	//   - Enter with TryPlain returns ErrNotFree.
	//   - Leave removes its session from a damaged document.
	//   - Break without a session ignores the recorded session.
	Apply(ctx context.Context, t Transition) (Lock, []Grant, error)

	// Read returns the lock document by the server's strongest read (linearizable on a replica
	// set). Errors: ErrNotFound, *MalformedError.
	Read(ctx context.Context, name string) (Lock, error)

	// List yields every lock document, with the pings of its processes, in the order of names. If
	// waited is set, it yields only documents with waiters. It yields a malformed document as a
	// *MalformedError and continues. Every other error ends the listing.
	List(ctx context.Context, waited bool) iter.Seq2[Snapshot, error]
}

// Pings has the operations for heartbeats, and for contenders that judge them.
type Pings interface {
	// Ping renews the process. It is an upsert that writes the server's clock into ping. Its filter
	// is {_id, condemned: absent, seq < b.Seq}, with local in b.Mine unless that is empty. The
	// sender chooses the number, so a delayed ping does not match after a later one. Ping returns
	// the document as written. It also acknowledges a ping that was applied twice. It sends one
	// command, and a read if the document does not match. Errors:
	//   - *CondemnedError when the process was condemned;
	//   - *TwinError when another process wrote the document;
	//   - *MalformedError for a seq that is not a number;
	//   - ErrNoMatch when the document changed before that read; the next ping reports the cause;
	//   - ErrUnknownOutcome.
	Ping(ctx context.Context, b Heartbeat) (Pinged, error)

	// ApplyPing changes one ping document in one command. Errors: those of the change;
	// ErrUnknownOutcome.
	ApplyPing(ctx context.Context, c PingChange) error

	// Held returns the sessions of process that hold or wait for a lock, in the order of names. It
	// skips malformed documents.
	Held(ctx context.Context, process string) ([]HeldSession, error)

	// OldPings returns the ping documents that the server's clock dated earlier than parameter
	// before. It returns at most MaxOldPings documents, in any order.
	OldPings(ctx context.Context, before time.Time) ([]OldPing, error)

	// Prune deletes the ping documents in old, and returns the number of deleted documents. It
	// keeps a document that has changed since it was read, and the document of a process that holds
	// or waits for a lock.
	Prune(ctx context.Context, old []OldPing) (int, error)

	// PruneLocks deletes lock documents that meet all these conditions:
	//   - The lock is free and has no waiters.
	//   - The last acquisition was earlier than parameter before, by the server's clock.
	//   - The fence is below parameter before in milliseconds, so that the next holder has a larger
	//     fence.
	//   - The document has not changed since it was read.
	//
	// It reads at most as many documents as parameter most, in the order of names, and starts
	// behind the name after. The result next is the name after for the next call, "" at the end.
	PruneLocks(ctx context.Context, before time.Time, after string, most int) (
		pruned int, next string, err error)

	// Prepare creates indexes by the processes of holders and of waiters on locks, and by ping on
	// lockpings. With these indexes the cost of a read does not grow with the number of names ever
	// locked. Many processes may run Prepare concurrently. It returns warnings for the operator,
	// such as a TTL index that would delete current pings.
	Prepare(ctx context.Context) (warnings []string, err error)

	// Hello returns the kind, the version and the clock of the server.
	Hello(ctx context.Context) (Server, error)
}

// Transactions has the operation that writes under a held lock.
type Transactions interface {
	// Transact executes run inside a transaction of the store. The transaction also changes the
	// lock document, with the filter {_id, s among the holders}. There are two cases:
	//   - The transaction commits while s holds the lock. A takeover waits for the transaction.
	//   - A takeover came first. The transaction has no effect.
	//
	// The lock document is written last, so that other writers do not wait for run. After a
	// conflict it is written first, so that they wait instead. So conflicts with other writers
	// never cause a third call.
	//
	// The context of run carries the transaction. Renew and PutFirst of s with that context are
	// part of the transaction. ctx bounds everything. Errors: those of run, unchanged; ErrNoMatch
	// when s does not hold the lock; ErrNoTransactions, before run is called; ErrUnknownOutcome
	// when the outcome of the commit is unknown.
	Transact(ctx context.Context, s Session, run func(ctx context.Context) error) error
}

// A Session names one acquisition of one lock. Every conditional write contains the session.
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
	// Since is zero for a new request. If the request lost its place in the queue, Since is the
	// time when it was first queued, and it goes before later waiters.
	Since time.Time
}

// Check returns an error if the request is for a permit and its limit is below 1, since it would
// make the document malformed.
func (r Request) Check() error {
	if r.Mode == Permit && r.Limit < 1 {
		return fmt.Errorf("a grant of mode %q has the limit %d; it must be at least 1", r.Mode, r.Limit)
	}
	return nil
}

// A Holder identifies a watched holder or waiter that may be evicted.
type Holder struct {
	Session
	// Process is the holder's process id, empty when the document does not contain it.
	Process string
	// Renewal is the number of the last watched lease renewal. A later renewal prevents the
	// eviction. Renewal is zero when the lease is not a reason for the eviction.
	Renewal int64
	// Waits requires that the session still waits: a waiter that was granted the lock meanwhile is
	// not evicted.
	Waits bool
}

// Watched reports whether the lock still has this holder with the watched renewal.
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

// Compare orders by session. The holder of a session comes before a waiter with the same session.
func (s HeldSession) Compare(as HeldSession) int {
	later := func(h HeldSession) int {
		if h.Waits {
			return 1
		}
		return 0
	}
	return cmp.Or(s.Session.Compare(as.Session), later(s)-later(as))
}

// A Heartbeat has the fields and the conditions of a ping.
type Heartbeat struct {
	Process string
	// Seq is the ping's number: 1, 2, 3 and so on per process id. Every sent ping has a new number,
	// even after a failure.
	Seq      int64
	Local    time.Time     // the process's own clock; milliseconds are written
	Takeover time.Duration // written as takeoverMS
	Interval time.Duration // written as pingMS
	// Mine has the Local of every ping that may be in the document: the last acknowledged ping and
	// every later one. A document with any other local time belongs to a twin, whatever its number.
	// If Mine is empty, such as for the first ping of an id, only the number is compared.
	Mine []time.Time
}

// Pinged is the ping document after a ping.
type Pinged struct {
	Ping
	// Inserted is set when there was no document before. If an earlier ping was acknowledged, the
	// document was deleted meanwhile.
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

// OldPingOf parses an old ping document. ok is false if it has no process id or no date. Other
// invalid fields do not matter.
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

// A Sight records when a contender read the last ping of a silent process. Later contenders measure
// from that reading, see package takeover.
type Sight struct {
	Seq   int64
	At    time.Time // the server's clock, as the contender read it
	Local time.Time // the contender's own clock when the reply arrived
	By    string    // the contender's process id; empty for the zero Sight
}

// A Snapshot is one reading of a lock.
type Snapshot struct {
	// Lock is nil when the document does not exist or is malformed, see LockErr. In a listing Lock
	// is never nil.
	Lock    *Lock
	LockErr *MalformedError
	// Ping is the holder's ping document. It is nil when the document does not exist or is
	// malformed (see PingErr), or when the lock has no process.
	Ping    *Ping
	PingErr *MalformedError
	// Pings has the pings of all holders and waiters by process id.
	Pings map[string]PingState
	// ServerTime is the server's clock at the reading; zero when unknown.
	ServerTime time.Time
	// Primary names the server's term (election id, or the start of a standalone process). It is
	// empty in a listing, and when the reading does not include the term.
	Primary string
}

// Looks is one reading of several locks, by name.
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
	// Front is set for the embedded server: a FerretDB behind a front.
	Front bool
	// ConfigServer is set for a mongod with --configsvr. MongoDB's own lock manager uses the same
	// collections on such a server, with a takeover time of 15 minutes.
	ConfigServer bool
	// Time is the server's clock. It is zero behind a mongos, since the clock of a mongos is not
	// the store's.
	Time time.Time
	// Primary names the primary's term, or the start of a standalone process.
	Primary string
	// Transactions, ChangeStreams and PipelineUpdates report the features of the configured database
	// in this deployment.
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}
