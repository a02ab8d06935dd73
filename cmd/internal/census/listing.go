// Package census reads what the commands and the web page list: locks with their queues, processes,
// loops and schedules. Every list begins with the rows in trouble, or can be sorted so.
package census

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// A Lock is one lock of a listing. Holders is never empty, because a free lock keeps its last
// holder.
type Lock struct {
	Name    string
	Holders []distlock.LockInfo
	Queue   []distlock.LockInfo
}

// Held reports whether a process holds the lock.
func (l *Lock) Held() bool { return l.Holders[0].Held }

// Trouble ranks the lock by its need for attention, as [words.Trouble].
func (l *Lock) Trouble() int { return words.Trouble(l.Holders, l.Queue) }

// First returns a holder in trouble. If there is none, it returns the first holder.
func (l *Lock) First() distlock.LockInfo {
	inTrouble := func(i distlock.LockInfo) bool { return i.Held && words.Suspect(i) }
	return l.Holders[max(0, slices.IndexFunc(l.Holders, inTrouble))]
}

// longest returns the maximum of a duration of the holders, or -1 if it is unknown.
func (l *Lock) longest(of func(distlock.LockInfo) time.Duration) int64 {
	longest := time.Duration(-1)
	for _, h := range l.Holders {
		longest = max(longest, of(h))
	}
	return int64(longest)
}

// An Order is a sort order of locks.
type Order struct {
	Name, Word string // of the flag --sort, and on the page
	weight     func(*Lock) int64
}

// Orders are the sort orders, the default first. In the default order the locks in trouble come
// first. Among locks in the same trouble, locks with longer queues come first.
var Orders = []Order{
	{"trouble", "Trouble", func(l *Lock) int64 {
		if t := l.Trouble(); t > 0 { // every queue is shorter than 1<<40
			return int64(t)<<40 + int64(len(l.Queue))
		}
		return 0
	}},
	{"name", "Name", func(*Lock) int64 { return 0 }},
	{"held", "Held for", func(l *Lock) int64 {
		return l.longest(func(h distlock.LockInfo) time.Duration {
			if !h.Held {
				return -1
			}
			return h.Age
		})
	}},
	{"ping", "Ping", func(l *Lock) int64 {
		return l.longest(func(h distlock.LockInfo) time.Duration { return h.PingAge })
	}},
	{"queue", "Queue", func(l *Lock) int64 { return int64(len(l.Queue)) }},
}

// Sort sorts locks. Locks with the same weight keep their order.
func (o Order) Sort(locks []*Lock) {
	weights := make(map[*Lock]int64, len(locks))
	for _, l := range locks {
		weights[l] = o.weight(l)
	}
	slices.SortStableFunc(locks, func(a, b *Lock) int { return cmp.Compare(weights[b], weights[a]) })
}

// A Listing contains the locks of a database.
type Listing struct {
	Locks     []*Lock // by name
	Malformed []*distlock.MalformedError
	Partial   bool      // the database has more locks or waiters
	Now       time.Time // the server's clock; zero if no lock is held
	Named     map[string]*Lock
}

// Bounds are the largest numbers of locks, of rows in one sequence, and of malformed documents.
type Bounds struct{ Locks, Rows, Malformed int }

// Unbounded are the bounds of a complete listing.
var Unbounded = Bounds{math.MaxInt, math.MaxInt, math.MaxInt}

// Read reads the rows of [distlock.Inspector.Locks], and then of Waiters. It derives the time of
// the server from the rows.
func Read(most Bounds, sequences ...iter.Seq2[distlock.LockInfo, error]) (*Listing, error) {
	l := &Listing{Named: map[string]*Lock{}}
	malformed := func(bad *distlock.MalformedError) {
		known := func(k *distlock.MalformedError) bool { return *k == *bad }
		if len(l.Malformed) < most.Malformed && !slices.ContainsFunc(l.Malformed, known) {
			l.Malformed = append(l.Malformed, bad)
		}
	}
	for _, rows := range sequences {
		n := 0
		for row, err := range rows {
			var bad *distlock.MalformedError
			if errors.As(err, &bad) {
				malformed(bad)
				continue
			}
			if err != nil {
				return nil, err
			}
			if n++; n > most.Rows || !l.add(row, most.Locks) {
				l.Partial = true
				break
			}
			if row.BadPing != nil {
				malformed(row.BadPing)
			}
			if now := row.Since.Add(row.Age); !row.Since.IsZero() && row.Age > 0 && now.After(l.Now) {
				l.Now = now
			}
		}
	}
	return l, nil
}

// add adds a holder or waiter. It returns false if there is no room.
func (l *Listing) add(row distlock.LockInfo, most int) bool {
	known := l.Named[row.Name]
	switch {
	case row.Place > 0:
		if known != nil { // otherwise the lock is omitted, or new
			known.Queue = append(known.Queue, row)
		}
	case known != nil:
		known.Holders = append(known.Holders, row)
	case len(l.Locks) == most:
		return false
	default:
		l.Named[row.Name] = &Lock{Name: row.Name, Holders: []distlock.LockInfo{row}}
		l.Locks = append(l.Locks, l.Named[row.Name])
	}
	return true
}
