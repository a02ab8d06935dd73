package ui

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

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

type listing struct {
	locks   []*lock
	named   map[string]*lock
	bad     []*distlock.MalformedError
	partial bool      // the database has more locks or waiters
	now     time.Time // the server's clock; this machine's clock if no lock is held
	void    string    // the message for a database without locks
	loops   reading[[]loopRow]
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
	l.now = cmp.Or(l.now, s.clock.Now().Wall)
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
	return l, nil
}

// read reads the holders and waiters of all locks. It sends two commands, and another command for
// each further batch of a reply. It derives the time of the server from the rows.
func read(ctx context.Context, from *distlock.Inspector) (*listing, error) {
	l := &listing{named: map[string]*lock{}}
	for _, rows := range []iter.Seq2[distlock.LockInfo, error]{from.Locks(ctx), from.Waiters(ctx)} {
		n := 0
		for row, err := range rows {
			var bad *distlock.MalformedError
			if errors.As(err, &bad) {
				l.addMalformed(bad)
				continue
			}
			if err != nil {
				return nil, err
			}
			if n++; n > maxRows || !l.add(row) {
				l.partial = true
				break
			}
			if row.BadPing != nil {
				l.addMalformed(row.BadPing)
			}
			if now := row.Since.Add(row.Age); !row.Since.IsZero() && row.Age > 0 && now.After(l.now) {
				l.now = now
			}
		}
	}
	return l, nil
}

// add adds a holder or waiter. It returns false if there is no room.
func (l *listing) add(row distlock.LockInfo) bool {
	known := l.named[row.Name]
	switch {
	case row.Place > 0:
		if known != nil { // otherwise the lock is omitted, or new
			known.Queue = append(known.Queue, row)
		}
	case known != nil:
		known.Holders = append(known.Holders, row)
	case len(l.locks) == maxLocks:
		return false
	default:
		l.named[row.Name] = &lock{Name: row.Name, Holders: []distlock.LockInfo{row}}
		l.locks = append(l.locks, l.named[row.Name])
	}
	return true
}

func (l *listing) addMalformed(bad *distlock.MalformedError) {
	known := func(k *distlock.MalformedError) bool { return *k == *bad }
	if len(l.bad) < maxBad && !slices.ContainsFunc(l.bad, known) {
		l.bad = append(l.bad, bad)
	}
}
