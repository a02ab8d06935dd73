package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
)

// Lease bounds the time for which a lock is held without a renewal, so that a job that hangs loses
// its lock. The guard is lost when d minus a margin has passed since the acquisition or the last
// [TryGuard.Renew], even if the heartbeat continues. The margin is to d as Config.Margin is to
// Config.Takeover: by default, a lease of 1 min is trusted for 45 s. A contender takes the lock
// after it has watched the lease for d without a renewal, or earlier by the witnesses rule of
// package takeover. A dead process loses the lock after the shorter of d and the takeover time.
//
// The duration d is 1 ms to 7 days. Every acquisition sends one more command, the first renewal. If
// three round trips take longer than d minus its margin, Lock returns [ErrBadOption].
func Lease(d time.Duration) Option {
	return optionFunc(func(o *acquireOptions) { o.life, o.leased = d, true })
}

type lease struct {
	life     time.Duration
	hold     time.Duration // the time for which a renewal is trusted: life minus the margin
	gone     chan struct{} // closed when the guard ends
	renewing chan struct{} // one element during a renewal
	number   int64         // number of the last renewal that was sent; owned by the call that renews

	sent atomic.Pointer[clock.Reading] // when the last acknowledged renewal was sent
}

func (c Config) trustedFor(life time.Duration) time.Duration {
	return life - time.Duration(float64(life)*float64(c.Margin)/float64(c.Takeover))
}

// leaseTrips is the number of round trips that must fit into the duration of a lease minus its
// margin.
const leaseTrips = 3

// beginLease sends the first renewal of a session that holds the lock, and returns the lease. The
// lease counts from this renewal, because the time of the grant is unknown.
func (m *Manager) beginLease(s *session) (*lease, error) {
	l := &lease{
		life: s.life, hold: m.cfg.trustedFor(s.life),
		gone: make(chan struct{}), renewing: make(chan struct{}, 1),
	}
	for try := 1; ; try++ {
		sent, err := m.renew(m.life, s.request.Session, l)
		switch {
		case errors.Is(err, catalog.ErrNoMatch):
			err = errors.New("it was taken before its lease began")
			return nil, &LostError{Name: s.request.Name, Fence: s.fence, Cause: err}
		case err != nil:
			return nil, fmt.Errorf("begin its lease: %w", err)
		}
		took := clock.HolderElapsed(sent, m.cfg.Clock.Now())
		if l.sent.Store(&sent); leaseTrips*took <= l.hold {
			return l, nil
		}
		if try == 2 {
			took = took.Round(time.Microsecond)
			return nil, fmt.Errorf("%w: Lease is %v, which is trusted for %v: %w: %d round trips of %v "+
				"must fit into that time; lengthen the lease",
				ErrBadOption, l.life, l.hold, leading.ErrSlow, leaseTrips, took)
		}
	}
}

// renew sends a renewal with a new number, and returns the time of the send. A contender can read
// that number only after the returned time.
func (m *Manager) renew(ctx context.Context, s catalog.Session, l *lease) (clock.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CommandTimeout)
	defer cancel()
	l.number++
	sent := m.cfg.Clock.Now()
	_, _, err := m.locks.Apply(ctx, transition.Renew{Renewal: catalog.Renewal{
		Session: s, Number: l.number, Life: l.life, Local: sent.Wall,
	}})
	return sent, err
}

func (l *lease) over(c clock.Clock) error {
	if passed := clock.HolderElapsed(*l.sent.Load(), c.Now()); passed >= l.hold {
		return fmt.Errorf("%w: the last renewal was sent %v ago, and trusted for %v of its life of %v",
			ErrLeaseExpired, passed.Round(time.Millisecond), l.hold, l.life)
	}
	return nil
}

// renewed restarts the lease at the time at which the renewal was sent. If the lease has already
// expired, renewed does nothing, because a lost guard stays lost. Only one goroutine at a time may
// call renewed, see [holding.excludeTransactions].
func (l *lease) renewed(c clock.Clock, sent clock.Reading) {
	if l.over(c) == nil {
		l.sent.Store(&sent)
	}
}

// left returns the time until the lease expires if no further renewal is acknowledged.
func (l *lease) left(c clock.Clock) time.Duration {
	return l.hold - clock.HolderElapsed(*l.sent.Load(), c.Now())
}

// deadline returns the local wall clock time at which the lease expires.
func (l *lease) deadline() time.Time { return l.sent.Load().Wall.Add(l.hold) }

// Renew restarts the guard's [Lease], from the send of its one command. Call Renew where the work
// makes progress, not from a timer: a lease must expire when the work hangs. Concurrent calls for
// one guard run one after the other. Errors: as Err; *LostError if the guard was lost before the
// reply came; [ErrBadOption] if the guard has no lease. After any other error the deadline is
// unchanged: try again.
func (g *TryGuard) Renew(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if err := g.Err(); err != nil {
		return err
	}
	if g.h.lease == nil {
		return fmt.Errorf("%w: %s was acquired without Lease: its heartbeat keeps it, there is nothing "+
			"to renew", ErrBadOption, quoted(g.Name()))
	}
	ctx, done := g.h.m.whileOpen(ctx)
	defer done()
	return g.h.renew(ctx)
}

// keep renews the lease until ctx or the guard ends. The pause between two renewals is a third of
// the difference between the lease's duration and its margin.
func (h *holding) keep(ctx context.Context) {
	defer func() { _ = recover() }() // a store that panics must not end the program
	timer := h.m.cfg.Clock.NewTimer(h.lease.hold / leaseTrips)
	defer timer.Stop()
	for h.err() == nil {
		select {
		case <-timer.C():
			_ = h.renew(ctx) // the next try follows; a loss ends the guard
			timer.Reset(h.lease.hold / leaseTrips)
		case <-h.lease.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (h *holding) renew(ctx context.Context) error {
	inside := h.transaction(ctx)
	if inside == nil { // a transaction runs alone, so its renewal needs no turn
		select {
		case h.lease.renewing <- struct{}{}:
			defer func() { <-h.lease.renewing }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done, err := h.excludeTransactions(ctx)
	if err != nil {
		return failedTo("renew", h.request.Name, err)
	}
	defer done()
	if err := h.err(); err != nil {
		return err
	}
	sent, err := h.m.renew(ctx, h.request.Session, h.lease)
	switch {
	case err == nil && inside != nil:
		inside.renewed, inside.sent = true, sent
		return h.err()
	case err == nil:
		h.lease.renewed(h.m.cfg.Clock, sent)
		return h.err()
	case errors.Is(err, catalog.ErrNoMatch):
		h.lose(errors.New("the server shows another session, or a twin of this process renews the lease"))
	case errors.Is(err, catalog.ErrMalformed):
		h.lose(err)
	}
	if lost := h.err(); lost != nil {
		return lost
	}
	return failedTo("renew", h.request.Name, err)
}

// watchLease ends the guard when its lease expires, and reports the loss. It returns when the guard
// ends.
func (h *holding) watchLease() {
	defer func() { _ = recover() }() // a logger that panics must not end the program
	left := func() time.Duration { return h.lease.left(h.m.cfg.Clock) }
	h.m.untilOver(h.err, left, h.lease.gone)
}
