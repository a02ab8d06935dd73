package distlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
	"mongodlm/internal/waitqueue"
	"mongodlm/pinger"
)

// unseeded bounds the fences that were counted up from nothing. A fence below it is raised to the
// server's clock in milliseconds before a guard is handed out, so that the successor of a document
// that somebody deleted is still larger.
const unseeded = 1 << 31

// maxRaces bounds how often one call starts again because the document changed between two of
// its commands.
const maxRaces = 3

// A call is one call that acquires a lock: [DistributedLock.TryLock] looks once, see try, and
// [DistributedLock.Lock] waits, see wait.
type call struct {
	m    *Manager
	name string
	o    acquireOptions
	session

	// What a call that waits knows, see wait.go.
	pause    time.Duration     // before the next try after a failure
	last     error             // why it waits
	place    *waitqueue.Waiter // among those of this process who have yet to enter the document
	stood    time.Time         // since when it stood in the line, if that was ended; server's clock
	refusals int               // since the last pause outside of the line
	kept     bool              // its place in the line is kept for another call, see keptPlaces
}

// A session is a lock session of a call, as begin makes it: one in most calls, and another in one
// that waits when the one before is over.
type session struct {
	term     *pinger.Term
	request  catalog.Request
	how      catalog.EnterMode
	inTurn   bool              // it was granted the lock out of the line
	previous string            // the process from which it takes the lock
	doubtful bool              // the outcome of an entering is not known
	waiter   *waitqueue.Waiter // nil but in a call that waits
}

// begin makes a session and notes that this process owns it before anything is sent. The caller
// must call attemptEnded of the owned sessions.
func (c *call) begin(how catalog.EnterMode) error {
	m := c.m
	if clock.Over(m.closed) {
		return acquiring(c.name, ErrClosed)
	}
	term := m.pinger.Term()
	if term == nil {
		return m.noHeartbeat(c.name)
	}
	c.session = session{term: term, how: how, request: catalog.Request{
		Session:  catalog.Session{Name: c.name, TS: bson.NewObjectID()},
		Process:  term.Process(),
		Who:      fmt.Sprintf("%s:%s:%08x", term.Process(), c.o.label, rand.Uint32()),
		Why:      c.o.why,
		Takeover: m.cfg.Takeover,
		Mode:     c.o.mode,
		Limit:    c.o.limit,
	}}
	m.owned.enter(c.request.TS)
	if clock.Over(m.closed) { // Close may have looked at what is owned before we were
		m.owned.attemptEnded(c.request.TS)
		return acquiring(c.name, ErrClosed)
	}
	return nil
}

func (m *Manager) noHeartbeat(name string) error {
	err := acquiring(name, ErrNoHeartbeat)
	if t := m.pinger.Last(); t != nil && t.Err() != nil {
		return fmt.Errorf("%w: %w", err, t.Err())
	}
	return err
}

// try is one whole try: take the lock, and if it is not to be had look, decide, and perhaps take it
// over. It returns a guard, a *HeldError, a *PermitMismatchError, or another error.
func (c *call) try(ctx context.Context) (g *TryGuard, err error) {
	ctx, done := c.m.whileOpen(ctx)
	defer done()
	defer func() {
		if err != nil {
			c.notAcquired(EventRefused, err)
		}
	}()
	if err := c.begin(catalog.Try); err != nil {
		return nil, err
	}
	defer c.m.owned.attemptEnded(c.request.TS)
	for race := 0; ; race++ {
		lock, err := c.take(ctx, race == 0)
		if err == nil {
			return c.newGuard(ctx, lock, "")
		}
		if !refused(err) {
			return c.unresolved(ctx, err, "")
		}
		guard, s, err := c.contend(ctx)
		if !errors.Is(err, errFree) {
			if errors.Is(err, ErrHeld) || errors.Is(err, ErrPermitMismatch) {
				c.m.judge.Keep(s)
			}
			return guard, err
		}
		if race >= maxRaces {
			e := c.heldError(s)
			e.Reason = "the server refused it as not free and showed it free, again and again"
			return nil, e
		}
	}
}

// refused reports whether the server answered that a lock is not to be had now: it is held, its
// line is full, or it is in use with another limit. Why, and whether the dead are in the way, only
// a look can tell.
func refused(err error) bool {
	return errors.Is(err, catalog.ErrNotFree) || errors.Is(err, catalog.ErrQueueFull) ||
		errors.Is(err, catalog.ErrPermitMismatch)
}

// take acquires a lock that is to be had at once. What the plain acquisition refuses although it is
// free, as one that a foreign manager left with its sharers, entering takes.
func (c *call) take(ctx context.Context, plainly bool) (catalog.Lock, error) {
	enter := transition.Enter{Request: c.request, How: c.how}
	if plainly && c.o.mode == catalog.Exclusive {
		enter.How = catalog.TryPlain
	}
	lock, _, err := c.m.locks.Apply(ctx, enter)
	if err != nil || enter.How == catalog.TryPlain {
		return lock, err
	}
	return c.mine(lock), nil
}

// mine shows a lock with the fence of this call, which is one of several holders perhaps.
func (c *call) mine(lock catalog.Lock) catalog.Lock {
	if p, ok := lock.HeldBy(c.request.TS); ok {
		lock.Fence, lock.When = p.Fence, p.Since
	}
	return lock
}

// errFree says that a lock, or a place in its line, may be free now: try again.
var errFree = errors.New("free")

// contend looks at a lock that was refused, takes the dead out of it, and decides. It returns a
// guard, errFree, a *HeldError, a *PermitMismatchError, or another error, with the last picture.
func (c *call) contend(ctx context.Context) (guard *TryGuard, s contend.Scene, err error) {
	defer func() {
		if ctx.Err() != nil { // the time of the call is too short for a look, or for what follows
			c.m.judge.Keep(contend.Scene{Name: c.name})
			c.m.judge.Wanted(c.name)
		}
	}()
	for race := 0; ; race++ {
		if s, err = c.m.judge.Look(ctx, c.name); err != nil {
			return nil, s, acquiring(c.name, err)
		}
		if err := s.Malformed(); err != nil {
			return nil, s, acquiring(c.name, err)
		}
		if s.Free() {
			return nil, s, c.grantNext(ctx, s)
		}
		guard, err = c.clear(ctx, s)
		if err == nil || !errors.Is(err, catalog.ErrNoMatch) {
			return guard, s, err
		}
		if race >= maxRaces {
			return nil, s, c.heldError(s)
		}
	}
}

// grantNext decides on a lock that nobody holds. A foreign release may have left a line in it: then
// it is the first one's, and this call does not overtake.
func (c *call) grantNext(ctx context.Context, s contend.Scene) error {
	if s.Lock == nil || len(s.Lock.Waiters) == 0 {
		return errFree
	}
	_, grants, err := c.m.locks.Apply(ctx, transition.GrantNext{Name: c.name})
	if err == nil || errors.Is(err, catalog.ErrNoMatch) || errors.Is(err, catalog.ErrUnknownOutcome) {
		c.m.queue.Deliver(grants)
		return c.answer(s)
	}
	return fmt.Errorf("distlock: acquire %s: grant it to the next: %w", quoted(c.name), err)
}

// clear deals with the dead of a held lock. It returns a guard, errFree when the line moved, an
// error that matches catalog.ErrNoMatch when the picture changed, or what answer says of the
// living.
func (c *call) clear(ctx context.Context, s contend.Scene) (*TryGuard, error) {
	if len(s.Judged) == 1 && len(s.Lock.Sharers) == 0 && c.o.mode == catalog.Exclusive &&
		s.Judged[0].Dead() {
		return c.overtake(ctx, s)
	}
	if c.how == catalog.Queue {
		if passed, _ := c.m.judge.PassOver(ctx, s, len(s.Judged)); passed > 0 {
			return nil, errFree
		}
	}
	evicted, err := c.m.judge.EvictDead(ctx, s, len(s.Judged))
	switch {
	case err != nil:
		return nil, acquiring(c.name, err)
	case evicted > 0:
		return nil, errFree
	}
	return nil, c.answer(s)
}

// answer is what a contender is told of a lock that nobody dead is in the way of: a
// *PermitMismatchError if it is in use with another limit, errFree if there is a place in a line
// that the contender would stand in, else a *HeldError.
func (c *call) answer(s contend.Scene) error {
	if c.waiter != nil && c.waiter.LastTurn > 0 {
		c.request.Behind = behind(s.Lock.Fence - c.waiter.LastTurn)
	}
	_, waits := s.Lock.WaitedBy(c.request.TS) // a lost reply: to enter again tells it
	_, holds := s.Lock.HeldBy(c.request.TS)
	if limit := s.OtherLimit(c.o.limit); limit != nil && !waits && !holds {
		return &acquireError{
			text:   "distlock: " + limit.Error() + "; " + c.heldError(s).facts(),
			causes: []error{limit},
		}
	}
	if waits || holds || c.how == catalog.Queue && s.Lock.RoomFor(c.request) {
		return errFree
	}
	return c.heldError(s)
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

// overtake carries a verdict Take out on the only party of a lock: condemn, and take it from the
// session that was watched. An error that matches catalog.ErrNoMatch says that somebody was faster
// or the holder lives: look again.
func (c *call) overtake(ctx context.Context, s contend.Scene) (*TryGuard, error) {
	dead := s.Judged[0]
	evidence, err := c.m.judge.Condemn(ctx, s, dead)
	if err != nil {
		return nil, acquiring(c.name, err)
	}
	c.previous = dead.Process
	taking := transition.Overtake{Request: c.request, From: dead.Watched(s.Name)}
	taken, _, err := c.m.locks.Apply(ctx, taking)
	switch {
	case errors.Is(err, catalog.ErrNoMatch):
		c.previous = ""
		return nil, err
	case err != nil:
		return c.unresolved(ctx, err, evidence)
	}
	return c.newGuard(ctx, taken, evidence)
}

// unresolved judges a failed acquire or overtake. An unknown outcome is never guessed: the server
// is asked for the session, by a write, for as long as the caller is there. Found: held. Not found:
// not held, and the reaper frees it should it appear later. No answer: the late-release list frees
// it.
func (c *call) unresolved(ctx context.Context, err error, evidence string) (*TryGuard, error) {
	failed := acquiring(c.name, err)
	if !errors.Is(err, catalog.ErrUnknownOutcome) {
		return nil, failed
	}
	failed = doubtful(failed)
	lock, err := catalog.Lock{}, ctx.Err()
	if err == nil { // the caller is still there
		ask, cancel := context.WithTimeout(ctx, c.m.cfg.CommandTimeout)
		defer cancel()
		lock, err = c.confirm(ask)
	}
	if err == nil {
		return c.newGuard(ctx, lock, evidence)
	}
	c.m.pinger.Doubt(c.term)
	if !errors.Is(err, catalog.ErrNoMatch) {
		c.m.pinger.ReleaseLater(c.request.Session, c.term)
	}
	return nil, failed
}

// confirm asks, by a write, whether this call holds the lock. A shared holder may enter again:
// it finds itself, or gets what it wanted.
func (c *call) confirm(ctx context.Context) (catalog.Lock, error) {
	if c.o.mode == catalog.Exclusive {
		lock, _, err := c.m.locks.Apply(ctx, transition.Confirm{Request: c.request})
		return lock, err
	}
	lock, _, err := c.m.locks.Apply(ctx, transition.Enter{Request: c.request, How: c.how})
	if errors.Is(err, catalog.ErrNotFree) {
		return lock, fmt.Errorf("%w: %w", catalog.ErrNoMatch, err)
	}
	return c.mine(lock), err
}

// newGuard makes a guard of a lock document that the server wrote for this call; proof is the
// evidence of a takeover.
func (c *call) newGuard(ctx context.Context, lock catalog.Lock, proof string) (*TryGuard, error) {
	fail := func(err error) (*TryGuard, error) {
		c.undo()
		return nil, acquiring(c.name, err)
	}
	if lock.Fence < unseeded {
		var err error
		if lock, err = c.seedFence(ctx, lock); err != nil {
			return fail(err)
		}
	}
	var life *lease
	if c.o.life > 0 {
		var err error
		if life, err = c.beginLease(ctx); err != nil {
			return fail(leaseNotBegun(c.name, lock.Fence, err))
		}
	}
	h := &holding{
		m: c.m, session: c.request.Session, process: c.request.Process, why: c.o.why,
		mode: c.o.mode, limit: c.o.limit, fence: lock.Fence, evidence: proof, term: c.term,
		label: c.o.label, lease: life, guards: 1, since: c.m.cfg.Clock.Now().Mono,
		transacting: make(chan struct{}, 1), loss: make(chan struct{}, 1),
	}
	h.loss <- struct{}{}
	above, _ := c.o.parent.Value(lineageKey{}).(*lineage)
	under := context.WithValue(c.o.parent, lineageKey{}, &lineage{h, above})
	h.ctx, h.cancel = context.WithCancelCause(under)
	h.telling.Add(1) // whoever ends it from now on tells that after we have told of it
	defer h.telling.Done()
	broken := c.m.owned.add(h) // before the term is asked: whoever ends it from now on finds the guard
	refuse := func(err error) (*TryGuard, error) {
		h.end(err)
		c.m.owned.remove(h)
		return fail(err)
	}
	if err := h.lapsed(); err != nil { // the reply came too late to be trusted
		return refuse(&LostError{Name: c.name, Fence: lock.Fence, Cause: err})
	}
	if broken {
		return refuse(&LostError{Name: c.name, Fence: lock.Fence, Cause: errBroken})
	}
	if clock.Over(c.m.closed) {
		return refuse(ErrClosed)
	}
	if life != nil {
		c.m.loops.Go(h.watchLease) // ends with the guard
	}
	g := newGuard(h) // from here on the lock is given back, whatever panics
	g.ctx = &guardContext{h.ctx, g}
	event := c.m.log.Info().Str("lock", catalog.Printable(c.name, 200)).Stringer("ts", c.request.TS).
		Int64("fence", lock.Fence).Str("why", catalog.Printable(c.o.why, 200))
	if proof != "" {
		event.Str("evidence", proof).Msg("taken over")
	} else {
		event.Msg("acquired")
	}
	h.handed = true
	if c.m.events != nil {
		c.tell(h)
	}
	return g, nil
}

// seedFence raises a fence that was counted up from nothing.
func (c *call) seedFence(ctx context.Context, lock catalog.Lock) (catalog.Lock, error) {
	seed := transition.SeedFence{Session: c.request.Session, AtLeast: lock.When.UnixMilli()}
	lock, _, err := c.m.locks.Apply(ctx, seed)
	if err == nil {
		return lock, nil
	}
	err = fmt.Errorf("raise the fence: %w", err)
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		err = doubtful(err)
	}
	return lock, err
}

// tell tells of the guard that this call has got.
func (c *call) tell(h *holding) {
	kind := EventAcquired
	switch {
	case h.evidence != "" && !strings.HasPrefix(h.evidence, brokenWord):
		kind = EventTakenOver
	case c.inTurn:
		kind = EventGranted
	}
	event := h.event(kind)
	event.Waited, event.Previous = c.m.cfg.Clock.Now().Mono-c.o.began, c.previous
	if kind == EventTakenOver && event.Previous == "" { // another process took the dead one out
		event.Previous = subjectOf(h.evidence)
	}
	event.Rule, event.Evidence = ruleOf(h.evidence), h.evidence
	c.m.events.emit(c.o.parent, event)
}

// notAcquired tells that a call ended without the lock.
func (c *call) notAcquired(kind EventKind, err error) {
	if c.m.events == nil {
		return
	}
	c.m.events.emit(c.o.parent, Event{
		Kind: kind, Name: c.name, Why: c.o.why, Mode: modeWord(c.o.mode), Process: c.m.Process(),
		Waited: c.m.cfg.Clock.Now().Mono - c.o.began, Err: err,
	})
}

// undo takes this call out of the lock, whether it holds or waits, in the background: its caller
// does not wait for it.
func (c *call) undo() { c.m.pinger.ReleaseSoon(c.request.Session, c.term) }

// heldError tells the caller what is known of the process in the way: the first holder that lives
// as far as anybody can tell, or the first in line.
func (c *call) heldError(s contend.Scene) *HeldError {
	e := &HeldError{Name: s.Name, PingAge: -1, Holders: len(s.Holders())}
	if s.Lock != nil {
		e.Waiters, e.Mode = len(s.Lock.Waiters), modeWord(s.Lock.Mode)
		e.Fence, e.Permits = s.Lock.Fence, int(s.Lock.Limit)
	}
	if len(s.Judged) == 0 {
		e.Reason = "it was free a moment ago"
		return e
	}
	in := s.Judged[0]
	for _, h := range s.Holders() {
		if !h.Dead() {
			in = h
			break
		}
	}
	e.Process, e.Who, e.Why, e.Since = in.Process, in.Who, in.Why, in.Since
	e.TakeoverIn, e.Reason = in.Decision.Remaining, ofIt(in.Decision.Reason, in.Process)
	if !in.Waits {
		e.Fence = in.Fence
	}
	if n := len(s.Holders()); n >= catalog.MaxHolders {
		e.Reason = fmt.Sprintf("%d hold it, as many as may; %s", n, e.Reason)
	}
	last := c.m.pinger.Last()
	e.Self = last != nil && in.Process == last.Process()
	if in.PingState.Ping != nil && !s.ServerTime.IsZero() {
		e.PingAge = max(0, s.ServerTime.Sub(in.PingState.Ping.At))
	}
	return e
}

// ofIt words a verdict for a text that has named the process before.
func ofIt(reason, process string) string {
	if process == "" {
		return reason
	}
	id := `"` + strings.ReplaceAll(catalog.Printable(process, 200), `"`, `\"`) + `"`
	its := strings.NewReplacer("the ping of "+id, "its ping", "ping of "+id, "its ping", id, "it")
	return its.Replace(reason)
}
