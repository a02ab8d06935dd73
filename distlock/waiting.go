package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/catalog"
)

// waiting is one call of Lock.
type waiting struct {
	m     *Manager
	o     acquireOptions
	name  string
	start Reading
	pause time.Duration
	last  error  // why it waits
	place *place // among those of this Manager who have yet to enter the document
}

// worthwhile reports whether there is time left, and reason to wait after err.
func (w *waiting) worthwhile(err error) bool {
	return worthWaiting(err) && (!w.o.bounded || w.left() > 0)
}

func (w *waiting) left() time.Duration {
	return w.o.wait - (w.m.cfg.Clock.Now().Mono - w.start.Mono)
}

// timeUp returns a channel on which the end of WaitAtMost is told, nil when there is none.
func (w *waiting) timeUp() (up <-chan time.Time, stop func()) {
	if !w.o.bounded {
		return nil, func() {}
	}
	timer := w.m.cfg.Clock.NewTimer(max(w.left(), time.Millisecond))
	return timer.C(), timer.Stop
}

// stopped is the error of a wait that was ended from outside.
func (w *waiting) stopped(cause error) error {
	last := w.last
	if last == nil {
		last = w.behind()
	}
	return fmt.Errorf("distlock: acquire %s: %w while waiting: %w", quoted(w.name), cause, last)
}

func (w *waiting) behind() error {
	return &HeldError{Name: w.name, PingAge: -1, Reason: "others of this process stand before it"}
}

// entered gives up the place before the document.
func (w *waiting) entered() {
	if w.place != nil {
		w.m.room.leave(w.name, w.place)
		w.place = nil
	}
}

// sleep pauses before the next try, and returns why there will be none. The pauses grow.
func (w *waiting) sleep(ctx context.Context) error {
	pause := w.m.pinger.Jitter(w.pause, 0.2)
	w.pause = min(w.pause+w.pause/2, w.m.cfg.PollMax)
	if w.o.bounded {
		pause = min(pause, max(w.left(), time.Millisecond))
	}
	timer := w.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.m.closed:
		return ErrClosed
	}
}

// stay is one stay in the line, from entering it to a guard or an error.
func (w *waiting) stay(ctx context.Context) (*TryGuard, error) {
	if w.place == nil {
		w.place = w.m.room.join(w.name)
	}
	if cause := w.stand(ctx, w.place.turn); cause != nil {
		return nil, w.stopped(cause)
	}
	if w.o.bounded && w.left() <= 0 {
		return nil, w.reason()
	}
	a, err := w.m.begin(w.name, w.o)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	me := newWaiter(a)
	w.m.room.enter(me)
	defer w.m.room.exit(me)
	a.grant.Holds = sessions(owned(ctx, w.o))
	lock, err := w.enter(ctx, me)
	if err != nil {
		return nil, err
	}
	w.entered()
	if _, got := lock.HeldBy(a.grant.TS); got {
		return a.hand(ctx, a.mine(lock), "")
	}
	w.m.room.queued(me, lock)
	return w.await(ctx, me)
}

// reason is why the time was up.
func (w *waiting) reason() error {
	if w.last != nil {
		return w.last
	}
	return w.behind()
}

// enter takes the lock or a place in its line. Entering again is harmless, so an unknown outcome is
// asked for by doing it again. A full line is tried again after a pause: the places are contended
// for.
func (w *waiting) enter(ctx context.Context, me *waiter) (catalog.Lock, error) {
	doubtful := false
	for {
		lock, err := w.m.locks.Enter(ctx, me.a.grant, catalog.Queue)
		if err == nil {
			if doubtful {
				w.m.room.doubt(me.a.grant.Session) // an earlier copy may be applied after all is over
			}
			return lock, nil
		}
		doubtful = doubtful || errors.Is(err, catalog.ErrUnknownOutcome)
		err = acquiring(w.name, err)
		if doubtful {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		if errors.Is(err, catalog.ErrQueueFull) {
			err = &HeldError{Name: w.name, PingAge: -1, Mode: modeWord(w.o.mode),
				Waiters: catalog.MaxWaiters, Reason: "its line is full"}
		}
		w.last = err
		cause := w.moreTries(ctx, me, err)
		if cause == nil {
			continue
		}
		if doubtful {
			w.m.room.doubt(me.a.grant.Session) // it may be applied later still
			me.a.undo()
		}
		if errors.Is(cause, errNoMore) {
			return catalog.Lock{}, err
		}
		return catalog.Lock{}, w.stopped(cause)
	}
}

// errNoMore says that another try to enter would be of no use.
var errNoMore = errors.New("no more tries")

// moreTries pauses before the next try to enter, or says why there is none.
func (w *waiting) moreTries(ctx context.Context, me *waiter, err error) error {
	if !w.worthwhile(err) || me.a.term.Err() != nil {
		return errNoMore
	}
	if cause := w.sleep(ctx); cause != nil {
		return cause
	}
	if w.o.bounded && w.left() <= 0 {
		return errNoMore
	}
	return nil
}

// await waits for the grant.
func (w *waiting) await(ctx context.Context, me *waiter) (*TryGuard, error) {
	up, stop := w.timeUp()
	defer stop()
	w.last = nil
	select {
	case award := <-me.won:
		return me.a.granted(ctx, award)
	case <-up:
		select {
		case award := <-me.won: // at the same instant
			return me.a.granted(ctx, award)
		default:
		}
		me.a.undo()
		return nil, w.outwaited(ctx, me)
	case <-ctx.Done():
		me.a.undo()
		w.last = me.held()
		return nil, w.stopped(context.Cause(ctx))
	case <-w.m.closed:
		me.a.undo()
		w.last = me.held()
		return nil, w.stopped(ErrClosed)
	case d := <-me.deadlock:
		select {
		case award := <-me.won: // at the same instant
			return me.a.granted(ctx, award)
		default:
		}
		me.a.undo()
		return nil, d
	case <-me.gone:
		me.a.undo()
		err := me.held()
		err.Reason = "its place in the line was removed"
		return nil, err
	case <-me.a.term.Done():
		// Others may take this process for dead, and its places with it: to the end of the line.
		me.a.undo()
		return nil, fmt.Errorf("distlock: acquire %s: %w: %w", quoted(w.name), ErrNoHeartbeat,
			me.a.term.Err())
	}
}

// outwaited says who was in the way when the time was up. Where the lock was not looked at yet it is
// now, so that the error has the facts.
func (w *waiting) outwaited(ctx context.Context, me *waiter) error {
	me.mu.Lock()
	looked := me.looked
	me.mu.Unlock()
	if looked {
		return me.held()
	}
	ctx, cancel := context.WithTimeout(ctx, w.m.cfg.CommandTimeout)
	defer cancel()
	s, err := w.m.look(ctx, w.name)
	if err != nil || s.malformed() != nil || len(s.suspects) == 0 {
		return me.held()
	}
	return w.m.heldError(s)
}

// granted makes a guard of a grant. It is worth what the deadline of the last ping says.
func (a *attempt) granted(ctx context.Context, award catalog.Award) (*TryGuard, error) {
	return a.hand(ctx, catalog.Lock{
		Name: award.Name, Held: true, TS: award.TS, Process: award.Process, Fence: award.Fence,
	}, award.Evidence)
}
