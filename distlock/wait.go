package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/contend"
	"mongodlm/internal/waitqueue"
)

// waiting is one call of Lock.
type waiting struct {
	m     *Manager
	o     acquireOptions
	name  string
	pause time.Duration
	last  error            // why it waits
	place *waitqueue.Place // among those of this process who have yet to enter the document
	stood time.Time        // since when it stood in the line, if its place was taken out; the server's clock

	refusals int  // since the last pause outside of the line
	kept     bool // its place in the line is kept for another call, see keptPlaces
}

// A waiter is one session of a call: it waits for its turn, for room, and in a line.
type waiter struct {
	*waitqueue.Waiter
	a        *attempt
	doubtful bool // the outcome of an entering is not known
}

// end ends the session of a waiter, whatever became of it.
func (w *waiter) end() {
	w.a.m.queue.Exit(w.Waiter)
	w.a.ended()
}

// held says who is in the way of a waiter, as far as it knows.
func (w *waiter) held() *HeldError {
	s := w.Scene()
	if s == nil {
		return &HeldError{Name: w.a.request.Name, PingAge: -1, Reason: "its line could not be entered"}
	}
	return w.a.m.heldError(*s)
}

// fateOf is the error of a waiter that must not stand in the line any longer.
func (w *waiter) fateOf(f waitqueue.Fate) error {
	switch {
	case f.Circle != nil:
		return &DeadlockError{Name: w.a.request.Name, Chain: f.Circle}
	case f.Removed:
		e := w.held()
		e.Reason = "its place in the line was removed"
		return e
	}
	return acquiring(w.a.request.Name, f.Err)
}

// note tells the log how a command of a wait went. What its caller is told is no failure, and of a
// lost heartbeat the pinger tells.
func (w *waiting) note(ctx context.Context, err error) {
	if errors.Is(err, ErrNoHeartbeat) {
		return
	}
	if errors.Is(err, ErrHeld) || refused(err) || waitqueue.Hopeless(err) {
		err = nil
	}
	w.m.calls.Note(ctx, err)
}

// stand waits until the place is the first of its line, and returns why there will be no turn.
func (w *waiting) stand(ctx context.Context) error {
	select {
	case <-w.place.Turn:
		return nil
	default:
	}
	select {
	case <-w.place.Turn:
		return nil
	case circle := <-w.place.Circle:
		return &DeadlockError{Name: w.name, Chain: circle}
	case <-ctx.Done():
		return w.stopped(context.Cause(ctx))
	case <-w.m.closed:
		return w.stopped(ErrClosed)
	}
}

// stopped is the error of a wait that was ended from outside: it matches the cause and the last
// reason for waiting. When the time of WaitAtMost was up the reason is all that is to be said.
func (w *waiting) stopped(cause error) error {
	last := w.reason()
	switch {
	case errors.Is(cause, errTimeUp) && last == nil:
		return &HeldError{Name: w.name, PingAge: -1, Reason: "the time was up first"}
	case errors.Is(cause, errTimeUp):
		return last
	case last == nil:
		return &stoppedError{acquireError{text: acquirePrefix(w.name) + plain(cause), causes: []error{cause}}}
	}
	return &stoppedError{acquireError{
		text:   acquirePrefix(w.name) + plain(cause) + " while waiting: " + reasonText(w.name, last),
		causes: []error{cause, last},
	}}
}

// A stoppedError ends the call.
type stoppedError struct{ acquireError }

// ended is the error of a call whose context has ended, and err what the last step said. What that
// knows of the lock, or of an outcome, counts.
func (w *waiting) ended(ctx context.Context, err error) error {
	var stopped *stoppedError
	switch {
	case errors.As(err, &stopped):
		return err
	case saysNothing(err):
	case w.last == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrOutcomeUnknown):
		w.last = err
	}
	return w.stopped(context.Cause(ctx))
}

// reason is why it waits; nil when nothing is known of that yet.
func (w *waiting) reason() error {
	if w.last == nil && w.place != nil && !w.place.First() {
		return &HeldError{Name: w.name, PingAge: -1, Reason: "others of this process stand before it"}
	}
	return w.last
}

// leaveLocalLine gives up the place before the document.
func (w *waiting) leaveLocalLine() {
	if w.place != nil {
		w.m.queue.Leave(w.place)
		w.place = nil
	}
}

// sleep pauses after a failure, which is in last, and returns why there will be no other try. The
// pauses grow.
func (w *waiting) sleep(ctx context.Context) error {
	w.note(ctx, w.last)
	pause := w.m.pinger.Jitter(w.pause, 0.2)
	w.pause = min(w.pause+w.pause/2, w.m.cfg.PollMax)
	timer := w.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	var told <-chan []string
	if w.place != nil {
		told = w.place.Circle
	}
	select {
	case <-timer.C():
		return nil
	case circle := <-told:
		return &DeadlockError{Name: w.name, Chain: circle}
	case <-ctx.Done():
		return w.stopped(context.Cause(ctx))
	case <-w.m.closed:
		return w.stopped(ErrClosed)
	}
}

// holds are the sessions that the caller holds while it waits.
func (w *waiting) holds(ctx context.Context) []bson.ObjectID { return sessions(owned(ctx, w.o)) }

// party is the caller as it would stand in a line.
func (w *waiting) party(ctx context.Context) catalog.Participant {
	return catalog.Participant{
		Process: w.m.Process(), Who: w.m.Process() + ":" + w.o.label, Why: w.o.why,
		Mode: w.o.mode, Limit: w.o.limit, Holds: w.holds(ctx),
	}
}

// queueOnce is one stay in the line, from entering it to a guard or an error.
func (w *waiting) queueOnce(ctx context.Context) (g *TryGuard, err error) {
	if w.place == nil {
		w.place = w.m.queue.Join(w.name, w.party(ctx))
	}
	if err := w.stand(ctx); err != nil {
		return nil, err
	}
	holds := w.holds(ctx)
	if k := w.goesOn(len(holds)); k != nil {
		defer func() { w.over(k.me, g) }()
		w.leaveLocalLine()
		return w.await(ctx, k.me, k.since)
	}
	a, err := w.m.begin(w.name, w.o)
	if err != nil {
		return nil, err
	}
	a.line = catalog.Queue
	a.request.Holds = holds
	if a.lastTurn = w.m.queue.LastTurn(w.name); a.lastTurn > 0 {
		a.request.Behind = behind(0)
	}
	a.request.Since, w.stood = w.stood, time.Time{}
	me := &waiter{Waiter: waitqueue.NewWaiter(&a.request), a: a}
	w.m.queue.Enter(me.Waiter)
	defer func() { w.over(me, g) }()
	lock, guard, err := w.enter(ctx, me)
	if me.doubtful {
		w.m.pinger.Doubt(a.term) // an earlier copy may be applied after all is over
	}
	switch {
	case guard != nil:
		return guard, nil
	case err != nil:
		if me.doubtful {
			a.undo()
		}
		return nil, err
	}
	w.leaveLocalLine()
	if mine, got := lock.HeldBy(a.request.TS); got {
		for _, g := range lock.Grants {
			if g.TS == mine.TS && g.Evidence != "" { // in its turn, before a reply told of the line
				g.Fence = mine.Fence
				return a.granted(ctx, g)
			}
		}
		return a.newGuard(ctx, a.mine(lock), "")
	}
	w.m.queue.Stands(me.Waiter, lock)
	mine, _ := lock.WaitedBy(a.request.TS)
	return w.await(ctx, me, mine.Since)
}

// over ends a stay, which brought a guard or none.
func (w *waiting) over(me *waiter, g *TryGuard) {
	if s := me.Scene(); g == nil && s != nil {
		w.m.judge.Keep(*s)
	}
	if !w.kept {
		me.end()
	}
}

// The last places of a line are for those who have waited for longest: a process that had a turn
// takes the last of them only turnsAPlace turns after it, one of them more for each so many turns.
// The fence counts the turns. Otherwise a caller that comes back at once would find the place just
// become free before those who look for one, for ever.
const (
	lastPlaces  = catalog.ReservedPlaces / 2
	turnsAPlace = catalog.MaxWaiters / 2
)

// behind is behind how many others a process may stand in line, so many turns after its own: fewer
// than none when the document was made anew meanwhile.
func behind(turns int64) int {
	if turns < 0 {
		return catalog.MaxWaiters
	}
	return catalog.MaxWaiters - lastPlaces + int(min(turns/turnsAPlace, lastPlaces))
}

// enter takes the lock or a place in its line, and waits outside of the document as long as there
// is none. A guard is that of a lock which it took over from the dead.
func (w *waiting) enter(ctx context.Context, me *waiter) (lock catalog.Lock, g *TryGuard, err error) {
	for ; ; w.place.SetShut(false) {
		if !w.place.Shut() {
			lock, err = w.tryToEnter(ctx, me)
			w.place.SetShut(refused(err) || !lock.RoomFor(me.a.request))
			if !refused(err) {
				return lock, nil, err
			}
			w.refusals++
		}
		if g, err = w.pollFullLine(ctx, me, err); !errors.Is(err, errFree) {
			return lock, g, err
		}
	}
}

// pollFullLine is how a contender waits that was refused a place: the line is full, or the lock is
// in use with another limit by the silent. It reads and does not write. Each look goes on with the
// watch of all who hold the lock or stand in the line, and takes the dead out; its pauses are those
// of the questions for grants, see package waitqueue. It returns a guard, errFree when there is
// room, as a look or an event of this process tells, or why it does not go on.
//
// refusal is what the server said last. After two refusals in a row it pauses even if the
// look shows room.
func (w *waiting) pollFullLine(ctx context.Context, me *waiter, refusal error) (*TryGuard, error) {
	for {
		sent := w.m.cfg.Clock.Now().Mono
		guard, s, err := me.a.contend(ctx)
		still := s.Still()
		switch {
		case errors.Is(err, errFree) && w.refusals > 1:
			err, still = w.refusedAs(s, refusal), sent-w.place.Since
		case errors.Is(err, ErrHeld):
		case errors.Is(err, ErrPermitMismatch) && s.Silent(w.o.limit):
		default:
			return guard, err
		}
		w.last, w.refusals = err, 0
		w.note(ctx, nil)
		pause := w.m.queue.OutsidePause(still, w.m.cfg.Clock.Now().Mono-sent)
		if err := w.linger(ctx, me, pause); err != nil {
			if !errors.Is(err, errFree) {
				w.m.judge.Keep(s)
			}
			return nil, err
		}
	}
}

// refusedAs words what the server refused, where a look shows no reason for it.
func (w *waiting) refusedAs(s contend.Scene, refusal error) error {
	if errors.Is(refusal, ErrPermitMismatch) {
		return acquiring(w.name, refusal)
	}
	e := w.m.heldError(s)
	e.Reason = "its line is full"
	return e
}

// linger pauses between two looks from outside. It returns nil for another look, errFree when a
// session of this process made room, or why the wait is over.
func (w *waiting) linger(ctx context.Context, me *waiter, pause time.Duration) error {
	timer := w.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-w.place.Room():
		return errFree
	case circle := <-w.place.Circle:
		return &DeadlockError{Name: w.name, Chain: circle}
	case <-ctx.Done():
		return w.stopped(context.Cause(ctx))
	case <-w.m.closed:
		return w.stopped(ErrClosed)
	case <-me.a.term.Done():
		return w.termOver(me)
	}
}

// termOver is the error of a wait in which the process lost its heartbeat: others may take it for
// dead, and its places with it. It goes to the end of the line.
func (w *waiting) termOver(me *waiter) error {
	return acquiring(w.name, fmt.Errorf("%w: %w", ErrNoHeartbeat, me.a.term.Err()))
}

// tryToEnter asks the server for the lock or a place in its line until it answers. Entering again
// is harmless, so an unknown outcome is asked for by doing it again. Its errors are those with
// which the server refused, see refused, and those of waiting.
func (w *waiting) tryToEnter(ctx context.Context, me *waiter) (catalog.Lock, error) {
	for {
		lock, _, err := w.m.locks.Apply(ctx, transition.Enter{Request: me.a.request, How: catalog.Queue})
		if err == nil || refused(err) {
			w.note(ctx, nil)
			return lock, err
		}
		me.doubtful = me.doubtful || errors.Is(err, catalog.ErrUnknownOutcome)
		if me.doubtful {
			err = doubtful(err)
		}
		failed := acquiring(w.name, err)
		if ctx.Err() == nil || !saysNothing(err) {
			w.last = failed
		}
		if !worthWaiting(err) || me.a.term.Err() != nil {
			return lock, failed
		}
		if err := w.sleep(ctx); err != nil {
			return lock, err
		}
	}
}

// await waits for the grant. A waiter that loses its place enters again as one that has stood there
// since that instant.
func (w *waiting) await(ctx context.Context, me *waiter, since time.Time) (*TryGuard, error) {
	w.last = nil
	select {
	case grant := <-me.Granted:
		return me.a.granted(ctx, grant)
	case <-ctx.Done():
		if len(me.Granted) > 0 && w.o.parent.Err() == nil { // at the same instant
			return me.a.granted(ctx, <-me.Granted)
		}
		w.last = me.held()
		if w.kept = errors.Is(context.Cause(ctx), errTimeUp) && len(me.a.request.Holds) == 0; w.kept {
			w.m.kept.keep(me, since)
		} else {
			me.a.undo()
		}
		return nil, w.stopped(context.Cause(ctx))
	case <-w.m.closed:
		me.a.undo()
		w.last = me.held()
		return nil, w.stopped(ErrClosed)
	case fate := <-me.Fate:
		select {
		case grant := <-me.Granted: // at the same instant
			return me.a.granted(ctx, grant)
		default:
		}
		me.a.undo()
		if fate.Removed {
			w.stood = since
		}
		return nil, me.fateOf(fate)
	case <-me.a.term.Done():
		me.a.undo()
		return nil, w.termOver(me)
	}
}

// granted makes a guard of a grant. It is worth what the deadline of the last ping says.
func (a *attempt) granted(ctx context.Context, grant catalog.Grant) (*TryGuard, error) {
	a.inTurn = true
	return a.newGuard(ctx, catalog.Lock{
		Name: grant.Name, Held: true, TS: grant.TS, Process: grant.Process, Fence: grant.Fence,
	}, grant.Evidence)
}
