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
// each further batch of a reply.
func read(ctx context.Context, from *distlock.Inspector) (*listing, error) {
	l := &listing{named: map[string]*lock{}}
	err := l.addRows(from.Locks(ctx), func(row distlock.LockInfo) bool {
		known := l.named[row.Name]
		if known == nil {
			if len(l.locks) == maxLocks {
				return false
			}
			known = &lock{Name: row.Name}
			l.named[row.Name] = known
			l.locks = append(l.locks, known)
		}
		known.Holders = append(known.Holders, row)
		return true
	})
	if err != nil {
		return nil, err
	}
	return l, l.addRows(from.Waiters(ctx), func(row distlock.LockInfo) bool {
		if known := l.named[row.Name]; known != nil { // otherwise the lock is omitted, or new
			known.Queue = append(known.Queue, row)
		}
		return true
	})
}

// addRows adds at most maxRows rows with the given function, which returns false if there is no
// room. It records malformed documents and pings, and derives the time of the server from the rows.
func (l *listing) addRows(all iter.Seq2[distlock.LockInfo, error],
	add func(distlock.LockInfo) bool) error {
	n := 0
	for row, err := range all {
		var bad *distlock.MalformedError
		if errors.As(err, &bad) {
			l.addMalformed(bad)
			continue
		}
		if err != nil {
			return err
		}
		if n++; n > maxRows || !add(row) {
			l.partial = true
			return nil
		}
		if row.BadPing != nil {
			l.addMalformed(row.BadPing)
		}
		if now := row.Since.Add(row.Age); !row.Since.IsZero() && row.Age > 0 && now.After(l.now) {
			l.now = now
		}
	}
	return nil
}

func (l *listing) addMalformed(bad *distlock.MalformedError) {
	known := func(k *distlock.MalformedError) bool { return *k == *bad }
	if len(l.bad) < maxBad && !slices.ContainsFunc(l.bad, known) {
		l.bad = append(l.bad, bad)
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
