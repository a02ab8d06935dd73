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

// Collection names as mongos has them, inside the configured database.
const (
	LocksCollection = "locks"
	PingsCollection = "lockpings"
)

// Catalog is the whole store. It reads every lock document with [ParseLock]. It is safe for
// concurrent use. Every method is bounded by its context and by the implementation's limit for one
// command.
type Catalog interface {
	Locks
	Pings
	Queues
	Transactions
}

// Locks has the operations of contenders, holders and operators.
type Locks interface {
	// Apply carries out a transition of one lock document in one step. For Enter, Confirm, SeedFence
	// and Break it returns the document after the change. For Leave, Evict and GrantNext it returns
	// the grants of the change; a grant of the same instant may be returned twice. With an error the
	// results have no meaning. A document that ParseLock rejects stays unchanged and is reported as
	// a *MalformedError. Exceptions: Enter by TryPlain returns ErrNotFree, a holder may leave a
	// document that was damaged while it held the lock, and Break without a session ignores the
	// recorded session. Only Enter creates a document; for any other transition a missing document
	// is ErrNoMatch. Errors: those of the transition, *MalformedError, ErrUnknownOutcome.
	Apply(ctx context.Context, t Transition) (Lock, []Grant, error)

	// Read returns the lock document by the strongest read the server has (linearizable on a
	// replica set). Errors: ErrNotFound, *MalformedError.
	Read(ctx context.Context, name string) (Lock, error)

	// List yields every lock document with the pings of its processes, in the order of names. If
	// waited is set, it yields only documents with waiters. A malformed document is yielded as a
	// *MalformedError and the listing continues; any other error ends it.
	List(ctx context.Context, waited bool) iter.Seq2[Snapshot, error]
}

// Pings has the operations of heartbeats and of the processes that judge them.
type Pings interface {
	// Ping renews the process: upsert, filter {_id, condemned: absent, seq < b.Seq, local in b.Mine
	// if that is not empty}, server's clock into ping. The sender chooses the number, so a delayed
	// ping does not match after a later one. Ping returns the document as written; a ping that was
	// carried out twice is acknowledged as well. It sends one command, and a read where the document
	// does not match. Errors: *CondemnedError when the process was condemned; *TwinError when
	// another process has written the document; *MalformedError for a seq that is no number;
	// ErrNoMatch when the document changed before that read, in which case the next ping shows the
	// cause; ErrUnknownOutcome.
	Ping(ctx context.Context, b Heartbeat) (Pinged, error)

	// ApplyPing carries out any other change of one ping document, in one command. Errors: those of
	// the change; ErrUnknownOutcome.
	ApplyPing(ctx context.Context, c PingChange) error

	// Held returns every session of process in the lock documents: as a holder, or as a waiter of a
	// lock, held or free. They come in the order of names. Malformed documents are skipped.
	Held(ctx context.Context, process string) ([]HeldSession, error)

	// OldPings returns the ping documents that are older than before (by the server's clock), at most
	// MaxOldPings, in no order.
	OldPings(ctx context.Context, before time.Time) ([]OldPing, error)

	// Prune deletes the ping documents that are unchanged since old was read, unless their process
	// holds a lock or waits for one, and returns their number. mongos also kept the pings of the
	// last holders of free locks, without a time limit.
	Prune(ctx context.Context, old []OldPing) (int, error)

	// PruneLocks deletes lock documents that are free, have no waiters, were last acquired before an
	// instant (by the server's clock), and have a fence below that instant in milliseconds, so that
	// the next holder of the name has a larger one. It reads at most that many documents that follow
	// the name after, in the order of names. It returns the name to continue after, "" at the end. A
	// document that changes meanwhile stays.
	PruneLocks(ctx context.Context, before time.Time, after string, most int) (
		pruned int, next string, err error)

	// Prepare creates the indexes that keep the cost of reads independent of the number of names
	// ever locked: on locks the holders and the waiters by process, on lockpings {ping: 1}. Many
	// processes may run it concurrently. It returns warnings for the operator, such as a TTL index
	// that would delete current pings.
	Prepare(ctx context.Context) (warnings []string, err error)

	// Hello returns the kind, the version and the clock of the server.
	Hello(ctx context.Context) (Server, error)
}

// Transactions has the operation by which a holder writes under its lock.
type Transactions interface {
	// Transact runs run in a transaction of the store that changes the lock document, filter {_id,
	// s among the holders}. So either the transaction commits while s holds the lock, and a
	// takeover waits for it; or the takeover came first, and the transaction has no effect. That
	// write is the last one, so that other writers of the lock document do not wait for run. After a
	// conflict it is the first one, so that the other writers wait instead: however many there are,
	// run is not called a third time for it. The context of run carries the transaction, and Renew
	// and PutFirst of s with that context are part of it. Everything is bounded by ctx. Errors:
	// those of run, unchanged; ErrNoMatch when s does not hold the lock; ErrNoTransactions, before
	// run is called; ErrUnknownOutcome when the outcome of the commit is unknown.
	Transact(ctx context.Context, s Session, run func(ctx context.Context) error) error
}

// A Session names one acquisition of one lock. Every conditional write carries it.
type Session struct {
	Name string
	TS   bson.ObjectID
}

// On returns the name of the lock.
func (s Session) On() string { return s.Name }

// Compare orders sessions by name, and within one lock by session.
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
	// Since is when the request was first queued, if it was queued before and lost its place: it
	// enters before waiters that came later. Zero for a newcomer.
	Since time.Time
}

// Check returns an error for a request that would make the document malformed: one for a permit
// with a limit below 1.
func (r Request) Check() error {
	if r.Mode == Permit && r.Limit < 1 {
		return fmt.Errorf("a grant of mode %q has the limit %d; it must be at least 1", r.Mode, r.Limit)
	}
	return nil
}

// A Holder identifies a holder or a waiter, as it was watched, for its eviction.
type Holder struct {
	Session
	// Process is the holder's process id, empty when the document does not contain it.
	Process string
	// Renewal is the number of the last watched renewal of its lease; a later renewal prevents the
	// eviction. Zero when the lease is not a reason for the eviction.
	Renewal int64
	// Waits requires that the session still waits: a waiter that was granted the lock meanwhile
	// stays. See package transition.
	Waits bool
}

// Watched reports whether the lock still has this holder, with the watched renewal.
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

// Compare orders by the session; one that holds comes before one that waits.
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
	// Seq numbers the pings of one process id: 1, 2, 3 and so on, a new number for every ping that
	// is sent, whether or not it succeeds.
	Seq      int64
	Local    time.Time     // the process's own clock; milliseconds are written
	Takeover time.Duration // written as takeoverMS
	Interval time.Duration // written as pingMS
	// Mine lists the Local of each ping that may be in the document: of the last acknowledged ping
	// and of every ping sent since. A document with another local time belongs to a twin, for any
	// number. If Mine is empty, as for the first ping of an id, only the number is compared.
	Mine []time.Time
}

// Pinged is the ping document after a ping.
type Pinged struct {
	Ping
	// Inserted is true when there was no document before. After an earlier acknowledged ping it
	// means that the document was deleted.
	Inserted bool
}

// MaxOldPings bounds the ping documents that one [Pings.OldPings] returns.
const MaxOldPings = 10_000

// An OldPing is the ping document of a process that has not pinged for long.
type OldPing struct {
	Process  string
	At       time.Time     // field ping: the server's clock at the last ping
	Interval time.Duration // field pingMS; zero when absent or out of bounds
}

// OldPingOf reads an old ping document; ok is false if it has no process id or no date. Other
// invalid fields do not matter.
func OldPingOf(raw bson.Raw) (p OldPing, ok bool) {
	doc := fieldsOf(raw)
	id, isText := doc.lookup("_id").StringValueOK()
	at := doc.lookup("ping")
	p = OldPing{Process: id, At: date(at), Interval: bounded(doc.lookup("pingMS"))}
	return p, isText && at.Type == bson.TypeDateTime
}

// A Condemnation names the process that declared another one dead, the time by the server's clock,
// and the reason.
type Condemnation struct {
	By       string
	At       time.Time // read only
	Evidence string
}

// A Sight records the number of the last ping of a silent process as a contender read it, with the
// time by the server's clock and by the contender's own. Later contenders measure from that time,
// see package takeover.
type Sight struct {
	Seq   int64
	At    time.Time // the server's clock, as the contender read it
	Local time.Time // the contender's own clock when the reply arrived
	By    string    // its process id; empty for the zero Sight
}

// A Snapshot is one reading of a lock.
type Snapshot struct {
	// Lock is nil when there is no document or it is malformed, see LockErr; never nil in a listing.
	Lock    *Lock
	LockErr *MalformedError
	// Ping is the ping document of the holder, nil when it does not exist, when the lock has no
	// process, or when the document is malformed, see PingErr.
	Ping    *Ping
	PingErr *MalformedError
	// Pings are the pings of all holders and waiters, by process.
	Pings map[string]PingState
	// ServerTime is the server's clock at the reading, zero when it is not known.
	ServerTime time.Time
	// Primary names the server's term (election id, or the start of a standalone process); empty
	// when this reading does not include it, and in a listing.
	Primary string
}

// Looks is one reading of several locks, by name.
type Looks = map[string]Snapshot

// Kind is the kind of a deployment.
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
	Version string // as the server reports it, "7.0.5"
	// Product names a server that is known to be neither MongoDB nor FerretDB; it is refused.
	Product string
	// Front is set when the embedded server's front stands before a FerretDB.
	Front bool
	// ConfigServer is set for a mongod that runs with --configsvr; MongoDB's own lock manager
	// works in the same collections there, with a takeover time of 15 minutes.
	ConfigServer bool
	// Time is the server's clock, zero behind a mongos, since its clock is not the store's.
	Time time.Time
	// Primary names the term of the primary, or the start of a standalone process.
	Primary string
	// Transactions, ChangeStreams and PipelineUpdates report the features of the configured database
	// in this deployment.
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}
