package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
	"mongodlm/internal/waitqueue"
	"mongodlm/pinger"
)

// This file is one call of Lock that waits, in the order in which it happens: its turn among those
// of this process, a place in the line of the document, the grant, and how it ends without.

// calling returns the context of the commands of a call that waits: it ends with ctx, when the time
// of WaitAtMost is up, and when Close is done.
func (c *call) calling(ctx context.Context) (context.Context, func()) {
	ctx, done := c.m.whileOpen(ctx)
	if !c.o.bounded || c.o.wait == 0 {
		return ctx, done
	}
	ctx, stop := c.m.within(ctx, c.o.wait)
	return ctx, func() { stop(); done() }
}

// wait acquires the lock for a caller that has time.
func (c *call) wait(ctx context.Context) (g *TryGuard, err error) {
	ctx, done := c.calling(ctx)
	defer done()
	defer func() {
		if err != nil {
			c.notAcquired(EventGaveUp, err)
		}
	}()
	c.m.waits.Add(1)
	defer c.m.waits.Add(-1)
	if err := c.m.standsInOwnWay(ctx, c.name, c.o); err != nil {
		return nil, err
	}
	c.m.judge.Wanted(c.name)
	c.pause = c.m.cfg.Poll
	defer c.leaveLocalLine()
	for {
		guard, err := c.queueOnce(ctx)
		switch {
		case guard != nil:
			c.m.queue.HadTurn(c.name, guard.Fence())
			return guard, nil
		case ctx.Err() != nil:
			return nil, c.stoppedBy(ctx, err)
		case !worthWaiting(err):
			return nil, err
		}
		c.last = err
		if err := c.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// queueOnce is one stay in the line, from entering it to a guard or an error.
func (c *call) queueOnce(ctx context.Context) (g *TryGuard, err error) {
	if c.place == nil {
		c.place = c.m.queue.Join(c.name, c.party(), c.o.manner)
	}
	if !clock.Over(c.place.Turn) {
		if _, err := c.idle(ctx, -1, c.place.Turn, nil); err != nil {
			return nil, err
		}
	}
	since, stands := c.goOn()
	if !stands {
		if err := c.begin(catalog.Queue); err != nil {
			return nil, err
		}
		c.request.Since, c.stood = c.stood, time.Time{}
		c.waiter = c.m.queue.Enter(c.request, c.o.manner, c.timeLeft(ctx))
		if c.waiter.LastTurn > 0 {
			c.request.Behind = behind(0)
		}
	}
	defer func() {
		if s := c.waiter.Scene.Load(); g == nil && s != nil {
			c.m.judge.Keep(*s)
		}
		if !c.kept {
			c.end()
		}
	}()
	if !stands {
		if since, g, err = c.enter(ctx); g != nil || err != nil {
			return g, err
		}
	}
	c.leaveLocalLine()
	return c.await(ctx, since)
}

// timeLeft is how long the call may go on; 0 when nothing bounds that.
func (c *call) timeLeft(ctx context.Context) (left time.Duration) {
	now := c.m.cfg.Clock.Now()
	if at, ok := ctx.Deadline(); ok {
		left = at.Sub(now.Wall)
	}
	if wait := c.o.wait - (now.Mono - c.o.began); c.o.bounded && (left == 0 || wait < left) {
		left = wait
	}
	return left
}

// end ends the session of a call that waits, whatever became of it.
func (c *call) end() {
	c.m.queue.Leave(c.waiter)
	c.m.owned.attemptEnded(c.request.TS)
}

// party is the caller as it would stand in a line.
func (c *call) party() catalog.Participant {
	process := c.m.pinger.Process()
	return catalog.Participant{
		Process: process, Who: process + ":" + c.o.label, Why: c.o.why,
		Mode: c.o.mode, Limit: c.o.limit,
	}
}

// leaveLocalLine gives up the place before the document.
func (c *call) leaveLocalLine() {
	if c.place != nil {
		c.m.queue.Leave(c.place)
		c.place = nil
	}
}

// enter takes the lock or a place in its line, and waits outside of the document as long as there
// is none. It returns a guard, or since when the session stands in the line, by the server's clock.
func (c *call) enter(ctx context.Context) (since time.Time, g *TryGuard, err error) {
	var lock catalog.Lock
	for {
		if !c.place.Line.Shut.Load() {
			lock, err = c.tryToEnter(ctx)
			c.place.Line.Shut.Store(refused(err) || !lock.RoomFor(c.request))
			if !refused(err) {
				break
			}
			c.refusals++
		}
		if g, err = c.pollFullLine(ctx, err); !errors.Is(err, errFree) {
			break
		}
		c.place.Line.Shut.Store(false)
	}
	if c.doubtful {
		c.m.pinger.Doubt(c.term) // an earlier copy may be applied after all is over
	}
	if err != nil && c.doubtful {
		c.undo()
	}
	if err != nil || g != nil {
		return since, g, err
	}
	c.leaveLocalLine()
	mine, got := lock.HeldBy(c.request.TS)
	if !got {
		c.m.queue.Stands(c.waiter, lock)
		mine, _ = lock.WaitedBy(c.request.TS)
		return mine.Since, nil, nil
	}
	for _, grant := range lock.Grants {
		if grant.TS == mine.TS && grant.Evidence != "" { // in its turn, before a reply told of the line
			grant.Fence = mine.Fence
			g, err = c.granted(ctx, grant)
			return since, g, err
		}
	}
	g, err = c.newGuard(ctx, c.mine(lock), "")
	return since, g, err
}

// tryToEnter asks the server for the lock or a place in its line until it answers. Entering again
// is harmless, so an unknown outcome is asked for by doing it again. Its errors are those with
// which the server refused, see refused, and those of waiting.
func (c *call) tryToEnter(ctx context.Context) (catalog.Lock, error) {
	for {
		lock, _, err := c.m.locks.Apply(ctx, transition.Enter{Request: c.request, How: c.how})
		if err == nil || refused(err) {
			c.note(ctx, nil)
			return lock, err
		}
		c.doubtful = c.doubtful || errors.Is(err, catalog.ErrUnknownOutcome)
		if c.doubtful {
			err = doubtful(err)
		}
		failed := acquiring(c.name, err)
		if ctx.Err() == nil || !saysNothing(err) {
			c.last = failed
		}
		if !worthWaiting(err) || c.term.Err() != nil {
			return lock, failed
		}
		if err := c.sleep(ctx); err != nil {
			return lock, err
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
func (c *call) pollFullLine(ctx context.Context, refusal error) (*TryGuard, error) {
	for {
		sent := c.m.cfg.Clock.Now().Mono
		guard, s, err := c.contend(ctx)
		still := s.Still()
		switch {
		case errors.Is(err, errFree) && c.refusals > 1:
			err, still = c.refusedAs(s, refusal), sent-c.place.Since()
		case errors.Is(err, ErrHeld):
		case errors.Is(err, ErrPermitMismatch) && s.Silent(c.o.limit):
		default:
			return guard, err
		}
		c.last, c.refusals = err, 0
		c.note(ctx, nil)
		pause := c.m.queue.OutsidePause(still, c.m.cfg.Clock.Now().Mono-sent)
		switch room, err := c.idle(ctx, pause, c.place.Line.Room, c.term); {
		case err != nil:
			c.m.judge.Keep(s)
			return nil, err
		case room: // a session of this process made it
			return nil, errFree
		}
	}
}

// refusedAs words what the server refused, where a look shows no reason for it.
func (c *call) refusedAs(s contend.Scene, refusal error) error {
	if errors.Is(refusal, ErrPermitMismatch) {
		return acquiring(c.name, refusal)
	}
	e := c.heldError(s)
	e.Reason = "its line is full"
	return e
}

// sleep pauses after a failure, which is in last, and returns why there will be no other try. The
// pauses grow.
func (c *call) sleep(ctx context.Context) error {
	c.note(ctx, c.last)
	pause := c.m.pinger.Jitter(c.pause, 0.2)
	c.pause = min(c.pause+c.pause/2, c.m.cfg.PollMax)
	_, err := c.idle(ctx, pause, nil, nil)
	return err
}

// idle waits outside of the document for a time, without end if it is negative, until it is woken,
// or until the term that it stands under is over, and returns why the wait is over, if it is.
func (c *call) idle(
	ctx context.Context, pause time.Duration, wake <-chan struct{}, term *pinger.Term,
) (woken bool, err error) {
	var up <-chan time.Time
	if pause >= 0 {
		timer := c.m.cfg.Clock.NewTimer(pause)
		defer timer.Stop()
		up = timer.C()
	}
	var over <-chan struct{}
	if term != nil {
		over = term.Done()
	}
	select {
	case <-up:
		return false, nil
	case <-wake:
		return true, nil
	case <-ctx.Done():
		return false, c.stopped(context.Cause(ctx))
	case <-c.m.closed:
		return false, c.stopped(ErrClosed)
	case <-over:
		return false, c.termOver()
	}
}

// await waits for the grant. A waiter that loses its place enters again as one that has stood there
// since that instant.
func (c *call) await(ctx context.Context, since time.Time) (*TryGuard, error) {
	c.last = nil
	select {
	case grant := <-c.waiter.Granted:
		return c.granted(ctx, grant)
	case <-ctx.Done():
		if len(c.waiter.Granted) > 0 && c.o.parent.Err() == nil { // at the same instant
			return c.granted(ctx, <-c.waiter.Granted)
		}
		c.last = c.held()
		if c.kept = errors.Is(context.Cause(ctx), errTimeUp); c.kept {
			c.m.kept.keep(c, since)
		} else {
			c.undo()
		}
		return nil, c.stopped(context.Cause(ctx))
	case <-c.m.closed:
		c.undo()
		c.last = c.held()
		return nil, c.stopped(ErrClosed)
	case fate := <-c.waiter.Fate:
		select {
		case grant := <-c.waiter.Granted: // at the same instant
			return c.granted(ctx, grant)
		default:
		}
		c.undo()
		if fate.Removed {
			c.stood = since
		}
		return nil, c.fateOf(fate)
	case <-c.term.Done():
		c.undo()
		return nil, c.termOver()
	}
}

// granted makes a guard of a grant. It is worth what the deadline of the last ping says.
func (c *call) granted(ctx context.Context, grant catalog.Grant) (*TryGuard, error) {
	c.inTurn = true
	return c.newGuard(ctx, catalog.Lock{
		Name: grant.Name, Held: true, TS: grant.TS, Process: grant.Process, Fence: grant.Fence,
	}, grant.Evidence)
}

// held says who is in the way of a session in line, as far as it knows.
func (c *call) held() *HeldError {
	s := c.waiter.Scene.Load()
	if s == nil {
		return &HeldError{Name: c.name, PingAge: -1, Reason: "its line could not be entered"}
	}
	return c.heldError(*s)
}

// fateOf is the error of one who must not wait any longer.
func (c *call) fateOf(f waitqueue.Fate) error {
	switch {
	case f.Removed:
		e := c.held()
		e.Reason = "its place in the line was removed"
		return e
	}
	return acquiring(c.name, f.Err)
}

// termOver is the error of a wait in which the process lost its heartbeat: others may take it for
// dead, and its places with it. It goes to the end of the line.
func (c *call) termOver() error {
	return acquiring(c.name, fmt.Errorf("%w: %w", ErrNoHeartbeat, c.term.Err()))
}

// note tells the log how a command of a wait went. What its caller is told is no failure, and of a
// lost heartbeat the pinger tells.
func (c *call) note(ctx context.Context, err error) {
	if errors.Is(err, ErrNoHeartbeat) {
		return
	}
	if errors.Is(err, ErrHeld) || refused(err) || waitqueue.Hopeless(err) {
		err = nil
	}
	c.m.calls.Note(ctx, err)
}

// stopped is the error of a wait that was ended from outside: it matches the cause and the last
// reason to wait. When the time of WaitAtMost was up the reason is all that is to be said.
func (c *call) stopped(cause error) error {
	last, text := c.last, acquirePrefix(c.name)+plain(cause)
	if last == nil && c.place != nil && !clock.Over(c.place.Turn) {
		last = &HeldError{Name: c.name, PingAge: -1, Reason: "others of this process stand before it"}
	}
	switch {
	case errors.Is(cause, errTimeUp) && last == nil:
		return &HeldError{Name: c.name, PingAge: -1, Reason: "the time was up first"}
	case errors.Is(cause, errTimeUp):
		return last
	case last == nil:
		return &stoppedError{acquireError{text: text, causes: []error{cause}}}
	}
	text += " while waiting: " + reasonText(c.name, last)
	return &stoppedError{acquireError{text: text, causes: []error{cause, last}}}
}

// stoppedBy is the error of a call whose context has ended, and err what the last step said. What
// that knows of the lock, or of an outcome, counts.
func (c *call) stoppedBy(ctx context.Context, err error) error {
	var stopped *stoppedError
	switch {
	case errors.As(err, &stopped):
		return err
	case saysNothing(err):
	case c.last == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrOutcomeUnknown):
		c.last = err
	}
	return c.stopped(context.Cause(ctx))
}

// keptPlaces are places in lines of documents whose callers' time was up a moment ago. Who comes
// again at once goes on with one of them, which costs no command and keeps the order. Else a crowd
// of those who wait for less than a few round trips at a time would write their leaving and their
// entering all the time, and hear of hardly any turn.
type keptPlaces struct {
	mu     sync.Mutex   // guards places
	places []*keptPlace // oldest first
}

// A keptPlace is that of a call whose caller has gone. It is kept for a grace.
type keptPlace struct {
	*call
	since time.Time     // see await
	taken chan struct{} // closed when it is kept no longer
}

// suits reports whether a caller of a lock could stand there: what the document says of it would be
// the same.
func (k *keptPlace) suits(c *call) bool {
	return k.name == c.name && k.o.mode == c.o.mode && k.o.limit == c.o.limit && k.o.why == c.o.why &&
		k.o.label == c.o.label && k.o.manner == c.o.manner && k.term.Err() == nil
}

// take returns the oldest place that will do, which is kept no longer; nil if there is none.
func (p *keptPlaces) take(do func(*keptPlace) bool) *keptPlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.places, do)
	if i < 0 {
		return nil
	}
	k := p.places[i]
	p.places = slices.Delete(p.places, i, i+1)
	close(k.taken)
	return k
}

// keep keeps the place of a caller whose time is up. Whatever ends that, if no other caller does,
// takes the session out of the lock, granted or not. Until then it is one that is under way: Close
// waits for it.
func (p *keptPlaces) keep(c *call, since time.Time) {
	k := &keptPlace{call: c, since: since, taken: make(chan struct{})}
	p.mu.Lock()
	p.places = append(p.places, k)
	p.mu.Unlock()
	go func() { // ends after a grace
		timer := c.m.cfg.Clock.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-k.taken:
			return
		case <-timer.C():
		case <-c.m.closed:
		case <-c.term.Done():
		}
		if p.take(func(one *keptPlace) bool { return one == k }) != nil {
			c.undo()
			c.end()
		}
	}()
}

// goOn takes over the session of a caller of this process that has just given up, if there is one
// for this call, and returns since when it stands in the line.
func (c *call) goOn() (since time.Time, ok bool) {
	k := c.m.kept.take(func(k *keptPlace) bool { return k.suits(c) })
	if k == nil {
		return since, false
	}
	c.session = k.session
	return k.since, true
}
