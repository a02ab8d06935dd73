package ui

import (
	"context"
	"errors"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// Limits of one round of reads. If a round omits locks, the page reports this. The page of a single
// lock reads an omitted lock by its name.
const (
	maxLocks = 10_000 // locks, in the order of names
	maxRows  = 20_000 // holders, and the same number of waiters
	maxBad   = 100    // documents that cannot be parsed
)

// A lock is one lock of a listing. Holders is never empty, because a free lock keeps its last
// holder.
type lock struct {
	Name    string
	Holders []distlock.LockInfo
	Queue   []distlock.LockInfo
}

// Held reports whether a process holds the lock.
func (l *lock) Held() bool { return l.Holders[0].Held }

// Leader returns the leader of an election, or nil without a leader.
func (l *lock) Leader() *distlock.LockInfo {
	if !l.Held() {
		return nil
	}
	return &l.Holders[0]
}

type listing struct {
	locks   []*lock
	named   map[string]*lock
	bad     []*distlock.MalformedError
	partial bool      // the database has more locks or waiters
	now     time.Time // the server's clock; zero if no row contains it
	void    string    // the message for a database without locks
	loops   reading[loopSummary]
	dead    reading[int64] // the number of dead rows; unknown without queues
}

// keepVoid is the time for which the message about a database without locks is cached.
const keepVoid = 10 * time.Second

// A state is the result of the latest round of reads, which all pages share.
type state = reading[*listing]

// A round reads the locks, the loops and the number of dead rows. If there is no lock, it also
// reads the message about a database without locks.
func (s *Server) read(ctx context.Context) (*listing, error) {
	l, err := read(ctx, s.cfg.Inspector)
	if err != nil {
		return nil, err
	}
	if len(l.locks)+len(l.bad) == 0 && s.cfg.Void != nil {
		l.void = s.void.get(ctx, s, s.cfg.Void).value
	}
	if s.cfg.Client != nil { // the page of locks counts failing loops and dead rows
		l.loops = s.loops.get(ctx, s, s.readLoops)
		if queues := namespacesOf(l.locks); len(queues) > 0 {
			l.dead = s.dead.get(ctx, s, func(ctx context.Context) (int64, error) {
				return s.readDead(ctx, queues)
			})
		}
	}
	s.record.compare(l, s.clock.Now().Wall)
	return l, nil
}

// read reads the holders and waiters of all locks. It sends two commands, and another command for
// each further batch of a reply.
func read(ctx context.Context, from *distlock.Inspector) (*listing, error) {
	l := &listing{named: map[string]*lock{}}
	rows := 0
	for row, err := range from.Locks(ctx) {
		if err := l.addMalformed(err); err != nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		known := l.named[row.Name]
		if rows++; rows > maxRows || known == nil && len(l.locks) == maxLocks {
			l.partial = true
			break
		}
		if known == nil {
			known = &lock{Name: row.Name}
			l.named[row.Name] = known
			l.locks = append(l.locks, known)
		}
		known.Holders = append(known.Holders, row)
		l.update(row)
	}
	rows = 0
	for row, err := range from.Waiters(ctx) {
		if err := l.addMalformed(err); err != nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		if rows++; rows > maxRows {
			l.partial = true
			break
		}
		if known := l.named[row.Name]; known != nil { // otherwise the lock is omitted, or new
			known.Queue = append(known.Queue, row)
		}
		l.update(row)
	}
	return l, nil
}

// addMalformed records err and returns nil if err is a *MalformedError. Otherwise it returns err.
func (l *listing) addMalformed(err error) error {
	var bad *distlock.MalformedError
	if !errors.As(err, &bad) {
		return err
	}
	for _, known := range l.bad {
		if *known == *bad {
			return nil
		}
	}
	if len(l.bad) < maxBad {
		l.bad = append(l.bad, bad)
	}
	return nil
}

// update adds a malformed ping of the row to the listing, and derives the time of the server from
// the row.
func (l *listing) update(row distlock.LockInfo) {
	if row.BadPing != nil {
		_ = l.addMalformed(row.BadPing) // the error is a MalformedError
	}
	if !row.Since.IsZero() && row.Age > 0 {
		if now := row.Since.Add(row.Age); now.After(l.now) {
			l.now = now
		}
	}
}

func (l *listing) each(visit func(distlock.LockInfo)) {
	for _, k := range l.locks {
		for _, h := range k.Holders {
			if h.Held {
				visit(h)
			}
		}
		for _, w := range k.Queue {
			visit(w)
		}
	}
}

func short(s string) string { return catalog.Printable(s, 120) }
