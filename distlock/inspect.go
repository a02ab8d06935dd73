package distlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
)

// LockInfo is one row of [Manager.Locks]. Texts are as stored: escape them before showing them.
type LockInfo struct {
	Name    string
	Held    bool
	Mode    string // "exclusive", "shared" or "permit"
	Limit   int    // the permits there are; 0 but in mode permit
	Process string // last holder's when the lock is free
	Who     string
	Why     string
	Since   time.Time // server's clock; zero when unknown
	// Session is the holder's lock session, the field ts; the last one's when the lock is free.
	Session bson.ObjectID
	Fence   int64 // this holder's; the last one's when the lock is free
	Waiters int   // how many queue for the lock
	// Takeover is the holder's recorded takeover time; zero when unknown.
	Takeover time.Duration
	PingInfo
}

// WaiterInfo is one row of [Manager.Waiters]. Texts are as stored: escape them before showing them.
type WaiterInfo struct {
	Name    string // of the lock
	Place   int    // 1 is the next in line
	Mode    string // "exclusive", "shared" or "permit"
	Limit   int    // the permits asked for; 0 but in mode permit
	Process string
	Who     string
	Why     string
	Since   time.Time // server's clock when it came; zero when unknown
	// Takeover is the waiter's recorded takeover time; zero when unknown.
	Takeover time.Duration
	PingInfo
}

// PingInfo is what a listing knows of the process of a holder or waiter.
type PingInfo struct {
	// HasPing is false when the process has no ping document that can be understood.
	HasPing bool
	// PingAge is how old its ping is by the server's clock; negative when unknown.
	PingAge time.Duration
	// Foreign is true when it has left no trace of ours: a mongos, or MongoDB's own manager. See the
	// method Foreign of package takeover's Evidence.
	Foreign bool
	// Condemned is true when a contender has declared the process dead.
	Condemned bool
	// Self is true when it is this Manager's process.
	Self bool
}

// Locks lists all lock documents by name, held or not, with what is known of their holders: one row
// for each holder, so several for a lock that is shared. A document that cannot be understood is
// yielded as a *MalformedError, and the listing goes on; any other error ends it. One command for
// each page of the server's answer. PostgreSQL: pg_locks, granted.
func (m *Manager) Locks(ctx context.Context) iter.Seq2[LockInfo, error] {
	return listed(ctx, m.locks.List(ctx, false), func(row catalog.Snapshot) []LockInfo {
		l := *row.Lock
		if !l.Held {
			l.Held = true // the last holder stays readable
			last := m.lockInfo(row, l, l.Holders()[0])
			last.Held = false
			return []LockInfo{last}
		}
		var infos []LockInfo
		for _, p := range l.Holders() {
			infos = append(infos, m.lockInfo(row, l, p))
		}
		return infos
	})
}

// Waiters lists who queues for which lock, by name and place. Errors and cost are those of Locks.
// Those of a process who wait inside it, because a line is full, are not in it. PostgreSQL: pg_locks,
// not granted.
func (m *Manager) Waiters(ctx context.Context) iter.Seq2[WaiterInfo, error] {
	return listed(ctx, m.locks.List(ctx, true), func(row catalog.Snapshot) []WaiterInfo {
		var infos []WaiterInfo
		for i, p := range row.Lock.Waiters {
			infos = append(infos, WaiterInfo{
				Name: row.Lock.Name, Place: i + 1, Mode: modeWord(p.Mode), Limit: int(p.Limit),
				Process: p.Process, Who: p.Who, Why: p.Why, Since: p.Since, Takeover: p.Takeover,
				PingInfo: m.pingInfo(row, p),
			})
		}
		return infos
	})
}

// listed turns the rows of a reading into rows of a listing.
func listed[T any](ctx context.Context, read iter.Seq2[catalog.Snapshot, error],
	rows func(catalog.Snapshot) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := usable(ctx); err != nil {
			yield(none, fmt.Errorf("distlock: list: %w", err))
			return
		}
		for row, err := range read {
			if err != nil {
				if !yield(none, fmt.Errorf("distlock: list: %w", err)) {
					return
				}
				continue
			}
			for _, info := range rows(row) {
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

func (m *Manager) lockInfo(row catalog.Snapshot, l catalog.Lock, p catalog.Party) LockInfo {
	return LockInfo{
		Name: l.Name, Held: l.Held, Mode: modeWord(p.Mode), Limit: int(p.Limit), Process: p.Process,
		Who: p.Who, Why: p.Why, Since: p.Since, Session: p.TS, Fence: p.Fence, Waiters: len(l.Waiters),
		Takeover: p.Takeover, PingInfo: m.pingInfo(row, p),
	}
}

func (m *Manager) pingInfo(row catalog.Snapshot, p catalog.Party) PingInfo {
	info := PingInfo{PingAge: -1, Self: p.Process != "" && p.Process == m.Process()}
	ping := row.Pulses[p.Process].Ping
	if p.Process == row.Lock.Process {
		ping = row.Ping
	}
	info.Foreign = contend.TraceOf(p, catalog.Pulse{Ping: ping}).Foreign()
	if ping == nil {
		return info
	}
	info.HasPing, info.Condemned = true, ping.Condemned != nil
	if !row.ServerTime.IsZero() {
		info.PingAge = max(0, row.ServerTime.Sub(ping.At))
	}
	return info
}

// Break frees a lock by force if its holder is still the one that the operator saw in a listing: it
// has that fence and, where one is given, that session ([LockInfo].Session; one at most). It writes
// the reason into the document, raises the fence and changes the session, so that the old holder's
// release touches nothing.
//
// A foreign holder, one whose ping is none of ours or that has none, does not raise the fence: it may
// have come after the one that the operator saw. It is broken by its session only.
//
// It is the one operation that can let two holders in: it does not wait. A holder that lives learns
// of it with its next ping, at most Ping plus one command later; until then it trusts its guard.
// Make sure that the holder is dead or stopped, or that what the lock protects checks the fence.
// Where others wait, the next in line is granted the lock at once. Of a shared lock the one holder
// with that fence is taken out.
//
// Errors: [ErrFenceMismatch] when the lock is free or has another fence or session by now, or a foreign
// holder and no session was given; [ErrBadName]; [ErrBadOption] for a why that is empty or too long
// and for two sessions; [ErrOutcomeUnknown]: list the lock again; [ErrClosed].
func (m *Manager) Break(ctx context.Context, name string, fence int64, why string,
	session ...bson.ObjectID) error {
	if err := checkName(name); err != nil {
		return err
	}
	if why == "" {
		return fmt.Errorf("%w: say why the lock is broken", ErrBadOption)
	}
	if problem := badText(why, maxWhy-len("broken: ")); problem != "" {
		return fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	if len(session) > 1 {
		return fmt.Errorf("%w: Break was given %d sessions; it breaks one", ErrBadOption, len(session))
	}
	if err := usable(ctx); err != nil {
		return fmt.Errorf("distlock: break %s: %w", quoted(name), err)
	}
	if m.closing() {
		return fmt.Errorf("distlock: break %s: %w", quoted(name), ErrClosed)
	}
	lock, err := m.breakLock(ctx, name, fence, why, session)
	switch {
	case errors.Is(err, errForeign):
		return fmt.Errorf("distlock: break %s: %w: %w", quoted(name), ErrFenceMismatch, errForeign)
	case errors.Is(err, catalog.ErrNoMatch):
		return fmt.Errorf("distlock: break %s: %w: it is not held with fence %d; list it again",
			quoted(name), ErrFenceMismatch, fence)
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return fmt.Errorf("distlock: break %s: %w: %w", quoted(name), ErrOutcomeUnknown, err)
	case err != nil:
		return fmt.Errorf("distlock: break %s: %w", quoted(name), err)
	}
	m.log.Warn().Str("lock", catalog.Printable(name, 200)).Int64("fence", lock.Fence).
		Str("process", catalog.Printable(lock.Process, 200)).Str("why", catalog.Printable(why, 200)).
		Msg("broken by hand")
	return nil
}

// errForeign says why a fence is not enough.
var errForeign = errors.New("a foreign holder has it, which raises no fence; name the session that you saw")

// breakLock frees a lock that one holder has to himself, or takes one of several holders out, or the
// holder whom a line of waiters follows; then the next in line is granted the lock at once.
func (m *Manager) breakLock(ctx context.Context, name string, fence int64, why string,
	session []bson.ObjectID) (catalog.Lock, error) {
	look, err := catalog.LookAt(ctx, m.locks, name)
	if err != nil {
		return catalog.Lock{}, err
	}
	l := look.Lock
	if l == nil { // none, or none that can be understood
		s := catalog.Session{Name: name}
		for _, ts := range session {
			s.TS = ts
		}
		return m.locks.Break(ctx, s, fence, why)
	}
	i := slices.IndexFunc(l.Holders(), func(p catalog.Party) bool {
		return p.Fence == fence && (len(session) == 0 || session[0] == p.TS)
	})
	if i < 0 {
		return catalog.Lock{}, fmt.Errorf("break %q: %w", name, catalog.ErrNoMatch)
	}
	seen := l.Holders()[i]
	ping := look.Pulses[seen.Process].Ping
	ours := seen.Mode != catalog.Exclusive || ping != nil && ping.HasSeq
	if len(session) == 0 && !ours {
		return catalog.Lock{}, errForeign
	}
	if len(l.Waiters) == 0 && len(l.Sharers) == 0 {
		lock, err := m.locks.Break(ctx, l.Session(), fence, why)
		if !errors.Is(err, catalog.ErrNoMatch) {
			return lock, err
		}
	}
	awards, err := m.locks.Evict(ctx, contend.HolderOf(name, seen), "broken: "+why)
	m.queue.Deliver(awards)
	return *l, err
}
