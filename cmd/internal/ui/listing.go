package ui

import (
	"cmp"
	"context"
	"time"

	"mongodlm/cmd/internal/census"
)

// bounds limit one round of reads. If a round omits locks, the page reports this. The page of a
// single lock reads an omitted lock by its name.
var bounds = census.Bounds{Locks: 10_000, Rows: 20_000, Malformed: 100}

type listing struct {
	*census.Listing
	void  string // the message for a database without locks
	loops reading[[]census.Loop]
	dead  reading[int64] // the number of dead rows; unknown without queues
}

// keepVoid is the time for which the message about a database without locks is cached.
const keepVoid = 10 * time.Second

// A state is the result of the latest round of reads, which all pages share.
type state = reading[*listing]

// read carries out a round: it reads the locks, the loops and the number of dead rows. If there is
// no lock, it also reads the message about a database without locks.
func (s *Server) read(ctx context.Context) (*listing, error) {
	from := s.cfg.Inspector
	locks, err := census.Read(bounds, from.Locks(ctx), from.Waiters(ctx))
	if err != nil {
		return nil, err
	}
	l := &listing{Listing: locks}
	l.Now = cmp.Or(l.Now, s.clock.Now().Wall)
	if len(l.Locks)+len(l.Malformed) == 0 && s.cfg.Void != nil {
		l.void = s.void.get(ctx, s, s.cfg.Void).value
	}
	// The page of locks counts failing loops and dead rows.
	l.loops = s.loops.get(ctx, s, s.readLoops)
	if queues := l.Queues(); len(queues) > 0 {
		l.dead = s.dead.get(ctx, s, func(ctx context.Context) (int64, error) {
			return s.readDead(ctx, queues)
		})
	}
	return l, nil
}
