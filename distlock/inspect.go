package distlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
)

// An Inspector lists and breaks locks. It has no heartbeat and no goroutine, and acquires nothing.
// Safe for concurrent use.
type Inspector struct {
	store   catalog.Catalog
	log     zerolog.Logger
	clock   clock.Clock
	events  *emitter
	closed  <-chan struct{}
	process func() string                                   // of the Manager; empty when there is none
	granted func([]catalog.Grant)                           // tells the Manager's waiters
	broken  func(s catalog.Session, fence int64) []*holding // ends the Manager's guards of it, before it is broken
	fit     func(context.Context) error                     // asked before a lock is broken
	open    func(context.Context) (context.Context, func()) // the context of a call: see whileOpen
	close   func(context.Context) error                     // of the store, when it is the Inspector's own
}

// NewInspector opens the store that cfg names; of its other fields it uses Database,
// AllowConfigThroughMongos, CommandTimeout, Logger and Observer. No I/O. Errors: *ConfigError; the
// cause of a ctx that has ended.
func NewInspector(ctx context.Context, cfg Config) (*Inspector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := usable(ctx); err != nil {
		return nil, fmt.Errorf("distlock: new inspector: %w", err)
	}
	cfg = cfg.withDefaults()
	s, err := openStore(ctx, cfg, false)
	if err != nil {
		return nil, creating(err)
	}
	in := settings{Config: cfg, Clock: clock.From(ctx)}
	s = s.prompt(in.Clock)
	closed := make(chan struct{})
	var once sync.Once
	return &Inspector{
		store: s.locks, log: cfg.Logger, clock: in.Clock, closed: closed,
		events:  newEmitter(cfg.Observer, in.Clock, cfg.Logger),
		process: func() string { return "" },
		granted: func([]catalog.Grant) {}, broken: func(catalog.Session, int64) []*holding { return nil },
		open: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
		fit: func(ctx context.Context) error {
			server, err := s.locks.Hello(ctx)
			if err != nil {
				return err
			}
			return acceptable(server, cfg)
		},
		close: func(ctx context.Context) (err error) {
			once.Do(func() {
				close(closed)
				err = s.hangUp(ctx)
			})
			return err
		},
	}, nil
}

// Inspector returns an Inspector of the Manager's store, which ends with it.
func (m *Manager) Inspector() *Inspector {
	return &Inspector{
		store: m.locks, log: m.log, clock: m.cfg.Clock, events: m.events, closed: m.closed,
		process: m.Process, granted: m.queue.Deliver, broken: m.owned.broken, open: m.whileOpen,
		fit:   func(context.Context) error { return nil }, // New has asked
		close: func(context.Context) error { return nil },
	}
}

// Close disconnects the clients that [NewInspector] made; the methods return [ErrClosed] from then
// on. That of a Manager ends with the Manager.
func (i *Inspector) Close(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; pass context.Background()", ErrBadOption)
	}
	if err := i.close(ctx); err != nil {
		return fmt.Errorf("distlock: close: %w", err)
	}
	return nil
}

// begin returns the context of a call, or why it cannot begin: its own context, or that the
// Inspector was closed.
func (i *Inspector) begin(ctx context.Context) (context.Context, func(), error) {
	select {
	case <-i.closed:
		return nil, nil, ErrClosed
	default:
	}
	if err := usable(ctx); err != nil {
		return nil, nil, err
	}
	ctx, done := i.open(ctx)
	return ctx, done, nil
}

// A LockInfo is one who holds a lock, or waits for it. Texts are as stored: escape them before
// showing them. Times and ages are by the server's clock.
type LockInfo struct {
	Name     string          // of the lock
	Place    int             // 1 for the next in line, and so on; 0 for a holder
	Held     bool            // false for a waiter, and for the last holder of a lock that is free
	Mode     string          // "exclusive", "shared" or "permit"
	Limit    int             // the permits that there are, or are asked for; 0 but in mode permit
	Process  string          // the process id
	Who      string          // process id, label and random part
	Why      string          // the reason it gave
	Since    time.Time       // when it got the lock, or came to wait; zero when unknown
	Age      time.Duration   // how long ago that was; negative when unknown
	Session  bson.ObjectID   // the lock session, the field ts
	Fence    int64           // 0 for a waiter
	Waiters  int             // how many wait for the lock
	Holds    []bson.ObjectID // sessions that the caller of a waiter holds meanwhile, see [Holding]
	Takeover time.Duration   // in the process's ping or in the lock, the longer; zero if unknown

	HasPing   bool            // the process has a ping document that can be understood
	BadPing   *MalformedError // what is wrong with the one it has
	PingAge   time.Duration   // of its ping; negative when unknown
	PingEvery time.Duration   // how often it pings; zero when unknown
	Lease     time.Duration   // of the holder; zero when it has none
	LeaseAge  time.Duration   // since it was renewed last; negative when unknown
	Foreign   bool            // a foreign manager: it has left no trace of this package
	Condemned bool            // a contender has declared the process dead
	BySession bool            // a holder that [Inspector.Break] takes out by its session only
	YieldBy   string          // the process that asked this holder to give the lock up, "" for none
	YieldWhy  string          // its reason
	Self      bool            // it is the process of the Manager whose Inspector this is
}

// Gone reports whether a waiter is passed over: condemned, silent for two pings or its takeover
// time, or waiting for so long without a ping.
func (i LockInfo) Gone() bool {
	if i.Place > 0 && !i.HasPing && i.BadPing == nil && i.Age > cmp.Or(i.Takeover, defaultTakeover) {
		return true
	}
	return i.Condemned || i.HasPing && i.PingAge > cmp.Or(2*i.PingEvery, i.Takeover, defaultTakeover)
}

// Locks lists all locks by name, held or not: a row for each holder, or for the last holder of a
// lock that is free. A document that cannot be understood is yielded as a *MalformedError, and the
// listing goes on; any other error ends it: [ErrUnavailable], *PrivilegeError, [ErrClosed], the
// cause of ctx. One command for each page of the answer. PostgreSQL: pg_locks, granted.
func (i *Inspector) Locks(ctx context.Context) iter.Seq2[LockInfo, error] {
	return i.list(ctx, false, i.holders)
}

// Waiters lists who waits for which lock, by name and place, except callers that wait inside their
// process. Errors and cost: those of Locks.
func (i *Inspector) Waiters(ctx context.Context) iter.Seq2[LockInfo, error] {
	return i.list(ctx, true, i.waiters)
}

// Holder reads one lock: its holders as Locks has them, and its waiters as Waiters has them; no
// rows when there is no such lock. One command, three on the embedded server. Errors: those of
// Locks; [ErrBadName].
func (i *Inspector) Holder(ctx context.Context, name string) (holders, waiters []LockInfo, err error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return nil, nil, failedTo("look at", name, err)
	}
	defer done()
	seen, err := catalog.LookAt(ctx, i.store, name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("distlock: %w", err)
	case seen.LockErr != nil:
		return nil, nil, fmt.Errorf("distlock: %w", seen.LockErr)
	case seen.Lock == nil:
		return nil, nil, nil
	}
	return i.holders(seen), i.waiters(seen), nil
}

// list turns what the store lists into rows.
func (i *Inspector) list(ctx context.Context, waiting bool,
	rows func(catalog.Snapshot) []LockInfo) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		ctx, done, err := i.begin(ctx)
		if err != nil {
			yield(LockInfo{}, &acquireError{text: "distlock: list: " + plain(err), causes: []error{err}})
			return
		}
		defer done()
		for seen, err := range i.store.List(ctx, waiting) {
			if err != nil {
				if !yield(LockInfo{}, fmt.Errorf("distlock: %w", err)) {
					return
				}
				continue
			}
			for _, row := range rows(seen) {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

func (i *Inspector) holders(seen catalog.Snapshot) []LockInfo {
	l := *seen.Lock
	if !l.Held {
		l.Held, l.Sharers = true, nil // the last holder stays readable
	}
	var rows []LockInfo
	for _, p := range l.Holders() {
		row := i.row(seen, p)
		row.Held = seen.Lock.Held
		row.YieldBy, row.YieldWhy = seen.Lock.Yield.By, seen.Lock.Yield.Why
		row.BySession = row.Held && !fenced(p, pulseOf(seen, p))
		rows = append(rows, row)
	}
	return rows
}

func (i *Inspector) waiters(seen catalog.Snapshot) []LockInfo {
	var rows []LockInfo
	for n, p := range seen.Lock.Waiters {
		row := i.row(seen, p)
		row.Place = n + 1
		rows = append(rows, row)
	}
	return rows
}

// row is what is known of a holder or waiter.
func (i *Inspector) row(seen catalog.Snapshot, p catalog.Participant) LockInfo {
	pulse := pulseOf(seen, p)
	since := func(t time.Time) time.Duration {
		if t.IsZero() || seen.ServerTime.IsZero() {
			return -1
		}
		return max(0, seen.ServerTime.Sub(t))
	}
	row := LockInfo{
		Name: seen.Lock.Name, Mode: modeWord(p.Mode), Limit: int(p.Limit), Process: p.Process, Who: p.Who,
		Why: p.Why, Since: p.Since, Age: since(p.Since), Session: p.TS, Fence: p.Fence,
		Waiters: len(seen.Lock.Waiters), Holds: p.Holds, Takeover: p.Takeover, BadPing: pulse.Err, PingAge: -1, LeaseAge: -1,
		Foreign: contend.TraceOf(p, pulse).Foreign(), Self: p.Process != "" && p.Process == i.process(),
	}
	if lease, ok := seen.Lock.LeaseOf(p.TS); ok {
		row.Lease, row.LeaseAge = lease.Life, since(lease.At)
	}
	if ping := pulse.Ping; ping != nil {
		row.HasPing, row.PingAge, row.PingEvery = true, since(ping.At), ping.Interval
		row.Takeover, row.Condemned = max(row.Takeover, ping.Takeover), ping.Condemned != nil
	}
	return row
}

// pulseOf is the ping of a holder or waiter.
func pulseOf(seen catalog.Snapshot, p catalog.Participant) catalog.PingState {
	if p.Process == seen.Lock.Process {
		return catalog.PingState{Ping: seen.Ping, Err: seen.PingErr}
	}
	return seen.Pings[p.Process]
}

// fenced reports whether a holder raised the fence when it came: it shares the lock, which no
// foreign manager can, or pings as ours do.
func fenced(p catalog.Participant, pulse catalog.PingState) bool {
	return p.Mode != catalog.Exclusive || pulse.Ping != nil && pulse.Ping.HasSeq
}
