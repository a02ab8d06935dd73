package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
)

// An Inspector lists and breaks locks. It has no heartbeat and acquires no lock. It is safe for
// concurrent use.
type Inspector struct {
	store     catalog.Catalog
	log       zerolog.Logger
	clock     clock.Clock
	events    *emitter
	closed    <-chan struct{}
	process   func() string                                   // process id of the Manager, or host:pid
	granted   func([]catalog.Grant)                           // delivers to the Manager's waiters
	endBroken func(s catalog.Session, fence int64) []*holding // ends the Manager's guards of a session
	fit       func(context.Context) error                     // checks the server before a break
	open      func(context.Context) (context.Context, func()) // context of a call; see whileOpen
	close     func(context.Context) error                     // closes the Inspector's store
}

// NewInspector opens the store of cfg. It uses cfg's Database, CommandTimeout, Logger, Observer and
// Host. No I/O. Errors: *ConfigError; the cause of ctx.
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
	s = s.prompt(in.CommandTimeout)
	host, _ := os.Hostname() // without a host name, the number alone identifies the Inspector
	process := fmt.Sprintf("%s:%d", cmp.Or(cfg.Host, host), os.Getpid())
	closed := make(chan struct{})
	var once sync.Once
	return &Inspector{
		store: s.locks, log: cfg.Logger, clock: in.Clock, closed: closed,
		events:    newEmitter(cfg.Observer, in.Clock, cfg.Logger),
		process:   func() string { return process },
		granted:   func([]catalog.Grant) {},
		endBroken: func(catalog.Session, int64) []*holding { return nil },
		open:      func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
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
				s.end(ErrClosed)
				err = s.hangUp(ctx)
			})
			return err
		},
	}, nil
}

// Inspector returns an Inspector of the store. [Manager.Close] closes it.
func (m *Manager) Inspector() *Inspector {
	return &Inspector{
		store: m.locks, log: m.log, clock: m.cfg.Clock, events: m.events, closed: m.closed,
		process: m.Process, granted: m.queue.Deliver, endBroken: m.owned.endBroken, open: m.whileOpen,
		fit:   func(context.Context) error { return nil }, // New has checked the server
		close: func(context.Context) error { return nil },
	}
}

// Close disconnects the clients of [NewInspector]. Afterwards the methods return [ErrClosed]. It
// has no effect on the Inspector of a Manager.
func (i *Inspector) Close(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; pass context.Background()", ErrBadOption)
	}
	if err := i.close(ctx); err != nil {
		return fmt.Errorf("distlock: close: %w", err)
	}
	return nil
}

func (i *Inspector) begin(ctx context.Context) (context.Context, func(), error) {
	if clock.Over(i.closed) {
		return nil, nil, ErrClosed
	}
	if err := usable(ctx); err != nil {
		return nil, nil, err
	}
	ctx, done := i.open(ctx)
	return ctx, done, nil
}

// A LockInfo is one holder or waiter of a lock. Escape its texts before display. Times and ages are
// those of the server's clock.
type LockInfo struct {
	Name     string        // name of the lock
	Place    int           // place in the queue: 1 for the next; 0 for a holder
	Held     bool          // false for a waiter, and for the last holder of a free lock
	Mode     string        // "exclusive", "shared" or "permit"
	Limit    int           // number of permits of the lock; 0 except in mode permit
	Process  string        // process id
	Who      string        // process id, label and random part
	Why      string        // reason of the acquisition
	Since    time.Time     // time of the acquisition, or of the queue entry; zero when unknown
	Age      time.Duration // time since Since; negative when unknown
	Session  bson.ObjectID // the lock session, the field ts
	Fence    int64         // 0 for a waiter
	Waiters  int           // number of waiters of the lock
	Takeover time.Duration // the longer of the takeover times in ping and lock; zero if unknown

	HasPing   bool            // the process has a well-formed ping document
	BadPing   *MalformedError // problem with the ping document
	PingAge   time.Duration   // age of the ping; negative when unknown
	PingEvery time.Duration   // ping interval; zero when unknown
	Lease     time.Duration   // the holder's lease; zero without one
	LeaseAge  time.Duration   // time since the last renewal; negative when unknown
	Foreign   bool            // holder of a foreign lock manager, without the fields of this package
	Condemned bool            // a contender has declared the process dead
	BySession bool            // [Inspector.Break] needs the session of this holder
	YieldBy   string          // process that asked this holder to release, or ""
	YieldWhy  string          // reason of that process
	Self      bool            // true for the process of the Inspector's Manager
}

// Gone reports whether the process of a waiter is condemned or has missed two pings. The lock is
// then granted to another waiter. Without a ping document, or without a ping interval in it, Gone
// reports true after the takeover time.
func (i LockInfo) Gone() bool {
	if i.Place > 0 && !i.HasPing && i.BadPing == nil && i.Age > cmp.Or(i.Takeover, defaultTakeover) {
		return true
	}
	return i.Condemned || i.HasPing && i.PingAge > cmp.Or(2*i.PingEvery, i.Takeover, defaultTakeover)
}

// Locks lists all locks by name, with a row for each holder, or for the last holder of a free lock.
// For a document that cannot be parsed it yields a *MalformedError and continues. Any other error
// ends the listing: [ErrUnavailable], *PrivilegeError, [ErrClosed], the cause of ctx. It sends one
// command for each page of the reply.
func (i *Inspector) Locks(ctx context.Context) iter.Seq2[LockInfo, error] {
	return i.list(ctx, false, i.holders)
}

// Waiters lists the queue entries of all locks, by name and place. Callers that wait inside their
// process have no entry. Errors and commands: as Locks.
func (i *Inspector) Waiters(ctx context.Context) iter.Seq2[LockInfo, error] {
	return i.list(ctx, true, i.waiters)
}

// Holder reads one lock, and returns its rows of Locks and Waiters, or none without a document. It
// sends one command, or three on the embedded server. Errors: as Locks; [ErrBadName].
func (i *Inspector) Holder(
	ctx context.Context, name string,
) (holders, waiters []LockInfo, err error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return nil, nil, failedTo("read", name, err)
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
		Waiters: len(seen.Lock.Waiters), Takeover: p.Takeover,
		BadPing: pulse.Err, PingAge: -1, LeaseAge: -1,
		Foreign: watch.EvidenceOf(p, pulse).Foreign(), Self: p.Process != "" && p.Process == i.process(),
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

func pulseOf(seen catalog.Snapshot, p catalog.Participant) catalog.PingState {
	if p.Process == seen.Lock.Process {
		return catalog.PingState{Ping: seen.Ping, Err: seen.PingErr}
	}
	return seen.Pings[p.Process]
}

// fenced reports whether a holder raised the fence when it acquired the lock. A foreign holder does
// not raise the fence. A holder is not foreign if its mode is shared or permit, or if its ping
// contains the fields of this package.
func fenced(p catalog.Participant, pulse catalog.PingState) bool {
	return p.Mode != catalog.Exclusive || pulse.Ping != nil && pulse.Ping.HasSeq
}

// Break frees a lock by force if it is still held with the given fence, and with the given session
// (LockInfo.Session), which is required if LockInfo.BySession is set. Break writes the reason why
// into the document, raises the fence, and changes the session. It grants the lock to the next
// waiter that is not dead and has not missed two pings. Of several holders, it removes the one with
// that fence.
//
// Break can let two holders in. A living holder trusts its guard until its next ping, for at most
// Config.Ping and one command. Make sure that the holder is dead or stopped, or that the protected
// resource checks the fence. A guard of the Inspector's own Manager is lost immediately.
//
// Break returns a row for each process that was granted the lock. Without a grant it returns one
// row whose field Held is false, or no row if other holders remain. Errors: as Locks; those of
// [New] for an unfit server; [ErrFenceMismatch]; [ErrBadName]; [ErrBadOption] for two sessions, and
// for a reason that is empty or longer than 1,016 bytes; [ErrOutcomeUnknown].
func (i *Inspector) Break(ctx context.Context, name string, fence int64, why string,
	session ...bson.ObjectID) ([]LockInfo, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if why == "" {
		return nil, fmt.Errorf("%w: give the reason for the break", ErrBadOption)
	}
	if problem := catalog.BadText(why, maxWhy-len(brokenWord)); problem != "" {
		return nil, fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	if len(session) > 1 {
		const text = "%w: Break was given %d sessions; it breaks one"
		return nil, fmt.Errorf(text, ErrBadOption, len(session))
	}
	ctx, done, err := i.begin(ctx)
	if err == nil {
		defer done()
		err = i.fit(ctx)
	}
	var broken catalog.Participant
	var now []LockInfo
	var own []*holding // guards of this process that the break ends
	defer func() {
		for _, h := range own {
			h.reportLoss()
		}
	}()
	end := func(s catalog.Session) { own = append(own, i.endBroken(s, fence)...) }
	if err == nil {
		broken, now, err = i.breakLock(ctx, name, fence, why, session, end)
	}
	switch {
	case errors.Is(err, errForeign):
		return nil, failedTo("break", name, fmt.Errorf("%w: %w", ErrFenceMismatch, errForeign))
	case errors.Is(err, catalog.ErrNoMatch):
		return nil, failedTo("break", name,
			fmt.Errorf("%w: it is not held with fence %d; list it again", ErrFenceMismatch, fence))
	case err != nil:
		return nil, failedTo("break", name, err)
	}
	i.log.Warn().Str("lock", catalog.Printable(name, 200)).Int64("fence", fence).
		Str("process", catalog.Printable(broken.Process, 200)).Str("why", catalog.Printable(why, 200)).
		Msg("broken by hand")
	if i.events != nil {
		i.events.emit(ctx, Event{
			Kind: EventBroken, Name: name, Why: why, Mode: modeWord(broken.Mode), Process: i.process(),
			Session: broken.TS, Fence: fence, Previous: broken.Process,
		})
	}
	return now, nil
}

// errForeign is the error of a break without a session, if the holder raises no fence.
var errForeign = errors.New(
	"its holder is foreign, and raises no fence; give the session of the holder")

// breakLock frees a lock with one holder and no waiters. From any other lock it removes one holder,
// and grants the lock to the next waiter in the same command. Before the command is sent, breakLock
// calls the given function with the holder's session. It returns the removed holder, and the rows
// for Break to return.
func (i *Inspector) breakLock(ctx context.Context, name string, fence int64, why string,
	session []bson.ObjectID, end func(catalog.Session)) (catalog.Participant, []LockInfo, error) {
	read, err := catalog.LookAt(ctx, i.store, name)
	if err != nil {
		return catalog.Participant{}, nil, err
	}
	l := read.Lock
	if l == nil { // no document, or a malformed document
		s := catalog.Session{Name: name}
		for _, ts := range session {
			s.TS = ts
		}
		end(s)
		return i.free(ctx, s, fence, why)
	}
	holders := l.Holders()
	n := slices.IndexFunc(holders, func(p catalog.Participant) bool {
		return p.Fence == fence && (len(session) == 0 || session[0] == p.TS)
	})
	if n < 0 {
		return catalog.Participant{}, nil, fmt.Errorf("break %q: %w", name, catalog.ErrNoMatch)
	}
	seen := holders[n]
	if len(session) == 0 && !fenced(seen, pulseOf(read, seen)) {
		return seen, nil, errForeign
	}
	waiters, now := i.removeSilent(ctx, read, len(holders) == 1)
	if waiters == 0 && len(l.Sharers) == 0 {
		end(l.Session())
		freed, free, err := i.free(ctx, l.Session(), fence, why)
		if !errors.Is(err, catalog.ErrNoMatch) {
			return freed, free, err
		} // a waiter came, or the lock changed
	}
	end(catalog.Session{Name: name, TS: seen.TS})
	granted, err := i.evict(ctx, watch.HolderOf(name, seen), brokenWord+why)
	if now = append(now, granted...); len(now) == 0 && len(holders) == 1 {
		now = append(now, LockInfo{Name: name})
	}
	return seen, now, err
}

// removeSilent removes the waiters that are gone, with one command each, so that the break does not
// grant them the lock. Unless alone is set, other holders remain after the break. Exclusive waiters
// then stay, because the break does not grant them the lock.
//
// removeSilent returns the number of remaining waiters, and the processes that were granted the
// lock. It ignores errors: the break that follows reports its own.
func (i *Inspector) removeSilent(ctx context.Context, read catalog.Snapshot, alone bool) (
	waiters int, now []LockInfo) {
	for _, w := range i.waiters(read) {
		waiters++
		if !w.Gone() || !alone && w.Mode == modeWord(catalog.Exclusive) {
			continue
		}
		const evidence = "rule silent: its process is dead, or has missed two pings, and " +
			"the lock is to be broken"
		session := catalog.Session{Name: w.Name, TS: w.Session}
		gone := catalog.Holder{Session: session, Process: w.Process, Waits: true}
		granted, err := i.evict(ctx, gone, evidence)
		now = append(now, granted...)
		if err == nil && i.events != nil {
			i.events.emit(ctx, Event{
				Kind: EventEvicted, Name: w.Name, Why: w.Why, Mode: w.Mode, Process: i.process(),
				Session: w.Session, Previous: w.Process, Rule: "silent", Evidence: evidence,
			})
		}
		if err == nil || errors.Is(err, catalog.ErrNoMatch) { // no match: it left or was granted the lock
			waiters--
		}
	}
	return waiters, now
}

// evict removes a holder or waiter, and returns the processes that are then granted the lock.
func (i *Inspector) evict(ctx context.Context, h catalog.Holder, why string) ([]LockInfo, error) {
	var now []LockInfo
	_, grants, err := i.store.Apply(ctx, transition.Evict{Holder: h, Evidence: why})
	i.granted(grants)
	for _, a := range grants {
		now = append(now, LockInfo{
			Name: h.Name, Held: true, Process: a.Process, Session: a.TS, Fence: a.Fence,
		})
	}
	return now, err
}

// free breaks a lock with one holder and no waiters.
func (i *Inspector) free(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Participant, []LockInfo, error) {
	lock, _, err := i.store.Apply(ctx, transition.Break{Session: s, Fence: fence, Why: why})
	freed := catalog.Participant{TS: s.TS, Process: lock.Process}
	return freed, []LockInfo{{Name: s.Name, Fence: lock.Fence}}, err
}
