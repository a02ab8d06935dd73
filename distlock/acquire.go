package distlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/contend"
	"mongodlm/pinger"
)

// unseeded bounds the fences that were counted up from nothing. A fence below it is raised to the
// server's clock in milliseconds before a guard is handed out, so that the successor of a document
// that somebody deleted is still larger.
const unseeded = 1 << 31

// maxRaces bounds how often one attempt starts again because the document changed between two of
// its commands.
const maxRaces = 3

// An attempt is one try to acquire: one lock session, known to be owned before it is sent.
type attempt struct {
	m       *Manager
	term    *pinger.Term
	request catalog.Request
	line    catalog.EnterMode
	life    time.Duration   // of the lease; zero for none
	parent  context.Context // of the guard; the contexts of the commands end earlier

	began    time.Duration // as in acquireOptions
	inTurn   bool          // it was granted the lock out of the line
	lastTurn int64         // the fence of the last turn that this process had; 0 for none
	previous string        // the process from which it takes the lock
	label    string
}

// begin makes the session of an attempt and notes that this process owns it. The caller must call
// leave.
func (m *Manager) begin(name string, o acquireOptions) (*attempt, error) {
	if m.closing() {
		return nil, acquiring(name, ErrClosed)
	}
	term := m.pinger.Term()
	if term == nil {
		return nil, m.noHeartbeat(name)
	}
	a := &attempt{m: m, term: term, request: catalog.Request{
		Session:  catalog.Session{Name: name, TS: bson.NewObjectID()},
		Process:  term.Process(),
		Why:      o.why,
		Takeover: m.cfg.Takeover,
		Mode:     o.mode,
		Limit:    o.limit,
	}, line: catalog.Try, life: o.life, parent: o.parent, began: o.began, label: o.label}
	a.request.Who = fmt.Sprintf("%s:%s:%08x", a.request.Process, o.label, rand.Uint32())
	m.owned.enter(a.request.TS)
	if m.closing() { // Close may have looked at what is owned before we were
		a.ended()
		return nil, acquiring(name, ErrClosed)
	}
	return a, nil
}

func (a *attempt) ended() { a.m.owned.attemptEnded(a.request.TS) }

func (m *Manager) noHeartbeat(name string) error {
	err := acquiring(name, ErrNoHeartbeat)
	if t := m.pinger.Last(); t != nil && t.Err() != nil {
		return fmt.Errorf("%w: %w", err, t.Err())
	}
	return err
}

// run is one whole try: take the lock, and if it is not to be had look, decide, and perhaps take it
// over. It returns a guard, a *HeldError, a *PermitMismatchError, or another error.
func (a *attempt) run(ctx context.Context) (*TryGuard, error) {
	for race := 0; ; race++ {
		lock, err := a.take(ctx, race == 0)
		if err == nil {
			return a.newGuard(ctx, lock, "")
		}
		if !refused(err) {
			return a.unresolved(ctx, err, "")
		}
		guard, s, err := a.contend(ctx)
		if !errors.Is(err, errFree) {
			if errors.Is(err, ErrHeld) || errors.Is(err, ErrPermitMismatch) {
				a.m.judge.Keep(s)
			}
			return guard, err
		}
		if race >= maxRaces {
			e := a.m.heldError(s)
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
func (a *attempt) take(ctx context.Context, plainly bool) (catalog.Lock, error) {
	if a.request.Mode == catalog.Exclusive && a.line == catalog.Try && plainly {
		lock, _, err := a.m.locks.Apply(ctx, transition.Enter{Request: a.request, How: catalog.TryPlain})
		return lock, err
	}
	lock, _, err := a.m.locks.Apply(ctx, transition.Enter{Request: a.request, How: a.line})
	if err != nil {
		return lock, err
	}
	return a.mine(lock), nil
}

// mine shows a lock with the fence of this attempt, which is one of several holders perhaps.
func (a *attempt) mine(lock catalog.Lock) catalog.Lock {
	if p, ok := lock.HeldBy(a.request.TS); ok {
		lock.Fence, lock.When = p.Fence, p.Since
	}
	return lock
}

// errFree says that a lock, or a place in its line, may be free now: try again.
var errFree = errors.New("free")

// contend looks at a lock that was refused, takes the dead out of it, and decides. It returns a
// guard, errFree, a *HeldError, a *PermitMismatchError, or another error, with the last picture.
func (a *attempt) contend(ctx context.Context) (guard *TryGuard, s contend.Scene, err error) {
	for race := 0; ; race++ {
		if s, err = a.m.judge.Look(ctx, a.request.Name); err != nil {
			return nil, s, acquiring(a.request.Name, err)
		}
		if err := s.Malformed(); err != nil {
			return nil, s, acquiring(a.request.Name, err)
		}
		if s.Free() {
			return nil, s, a.grantNext(ctx, s)
		}
		guard, err = a.clear(ctx, s)
		if err == nil || !errors.Is(err, catalog.ErrNoMatch) {
			return guard, s, err
		}
		if race >= maxRaces {
			return nil, s, a.m.heldError(s)
		}
	}
}

// grantNext decides on a lock that nobody holds. A foreign release may have left a line in it: then
// it is the first one's, and this attempt does not overtake.
func (a *attempt) grantNext(ctx context.Context, s contend.Scene) error {
	if s.Lock == nil || len(s.Lock.Waiters) == 0 {
		return errFree
	}
	_, grants, err := a.m.locks.Apply(ctx, transition.GrantNext{Name: a.request.Name})
	if err == nil || errors.Is(err, catalog.ErrNoMatch) || errors.Is(err, catalog.ErrUnknownOutcome) {
		a.m.queue.Deliver(grants)
		return a.answer(s)
	}
	return fmt.Errorf("distlock: acquire %s: grant it to the next: %w", quoted(a.request.Name), err)
}

// clear deals with the dead of a held lock. It returns a guard, errFree when the line moved, an
// error that matches catalog.ErrNoMatch when the picture changed, or what answer says of the
// living.
func (a *attempt) clear(ctx context.Context, s contend.Scene) (*TryGuard, error) {
	if len(s.Judged) == 1 && len(s.Lock.Sharers) == 0 && a.request.Mode == catalog.Exclusive &&
		s.Judged[0].Dead() {
		return a.overtake(ctx, s, s.Judged[0])
	}
	if a.line == catalog.Queue {
		if passed, _ := a.m.judge.PassOver(ctx, s, len(s.Judged)); passed > 0 {
			return nil, errFree
		}
	}
	evicted, err := a.m.judge.EvictDead(ctx, s, len(s.Judged))
	switch {
	case err != nil:
		return nil, acquiring(a.request.Name, err)
	case evicted > 0:
		return nil, errFree
	}
	return nil, a.answer(s)
}

// answer is what a contender is told of a lock that nobody dead is in the way of: a
// *PermitMismatchError if it is in use with another limit, errFree if there is a place in a line
// that the contender would stand in, else a *HeldError.
func (a *attempt) answer(s contend.Scene) error {
	if a.lastTurn > 0 {
		a.request.Behind = behind(s.Lock.Fence - a.lastTurn)
	}
	_, waits := s.Lock.WaitedBy(a.request.TS) // a lost reply: to enter again tells it
	_, holds := s.Lock.HeldBy(a.request.TS)
	if limit := s.OtherLimit(a.request.Limit); limit != nil && !waits && !holds {
		return &acquireError{
			text:   "distlock: " + limit.Error() + "; " + a.m.heldError(s).facts(),
			causes: []error{limit},
		}
	}
	if waits || holds || a.line == catalog.Queue && s.Lock.RoomFor(a.request) {
		return errFree
	}
	return a.m.heldError(s)
}

// overtake carries a verdict Take out on the only party of a lock: condemn, and take it from the
// session that was watched. An error that matches catalog.ErrNoMatch says that somebody was faster
// or the holder lives: look again.
func (a *attempt) overtake(ctx context.Context, s contend.Scene, dead contend.Judged) (*TryGuard, error) {
	evidence, err := a.m.judge.Condemn(ctx, s, dead)
	if err != nil {
		return nil, acquiring(a.request.Name, err)
	}
	a.previous = dead.Process
	taken, _, err := a.m.locks.Apply(ctx, transition.Overtake{Request: a.request, From: dead.Watched(s.Name)})
	switch {
	case errors.Is(err, catalog.ErrNoMatch):
		a.previous = ""
		return nil, err
	case err != nil:
		return a.unresolved(ctx, err, evidence)
	}
	return a.newGuard(ctx, taken, evidence)
}

// unresolved judges a failed acquire or overtake. An unknown outcome is never guessed: the server
// is asked for the session, by a write, for as long as the caller is there. Found: held. Not found:
// not held, and the reaper frees it should it appear later. No answer: the late-release list frees
// it.
func (a *attempt) unresolved(ctx context.Context, err error, evidence string) (*TryGuard, error) {
	failed := acquiring(a.request.Name, err)
	if !errors.Is(err, catalog.ErrUnknownOutcome) {
		return nil, failed
	}
	failed = doubtful(failed)
	lock, err := catalog.Lock{}, ctx.Err()
	if err == nil { // the caller is still there
		ask, cancel := context.WithTimeout(ctx, a.m.cfg.CommandTimeout)
		defer cancel()
		lock, err = a.confirm(ask)
	}
	if err == nil {
		return a.newGuard(ctx, lock, evidence)
	}
	a.m.pinger.Doubt(a.term)
	if !errors.Is(err, catalog.ErrNoMatch) {
		a.m.pinger.ReleaseLater(a.request.Session, a.term)
	}
	return nil, failed
}

// confirm asks, by a write, whether this attempt holds the lock. A shared holder may enter again:
// it finds itself, or gets what it wanted.
func (a *attempt) confirm(ctx context.Context) (catalog.Lock, error) {
	if a.request.Mode == catalog.Exclusive {
		lock, _, err := a.m.locks.Apply(ctx, transition.Confirm{Request: a.request})
		return lock, err
	}
	lock, _, err := a.m.locks.Apply(ctx, transition.Enter{Request: a.request, How: a.line})
	if errors.Is(err, catalog.ErrNotFree) {
		return lock, fmt.Errorf("%w: %w", catalog.ErrNoMatch, err)
	}
	return a.mine(lock), err
}

// newGuard makes a guard of a lock document that the server wrote for this attempt.
func (a *attempt) newGuard(ctx context.Context, lock catalog.Lock, evidence string) (*TryGuard, error) {
	fail := func(err error) (*TryGuard, error) {
		a.undo()
		return nil, acquiring(a.request.Name, err)
	}
	if lock.Fence < unseeded {
		var err error
		seed := transition.SeedFence{Session: a.request.Session, AtLeast: lock.When.UnixMilli()}
		if lock, _, err = a.m.locks.Apply(ctx, seed); err != nil {
			err = fmt.Errorf("raise the fence: %w", err)
			if errors.Is(err, catalog.ErrUnknownOutcome) {
				err = doubtful(err)
			}
			return fail(err)
		}
	}
	var life *lease
	if a.life > 0 {
		var err error
		if life, err = a.beginLease(ctx); err != nil {
			return fail(leaseNotBegun(a.request.Name, lock.Fence, err))
		}
	}
	h := &holding{
		m: a.m, session: a.request.Session, process: a.request.Process, why: a.request.Why,
		mode: a.request.Mode, limit: a.request.Limit, fence: lock.Fence, evidence: evidence, term: a.term,
		label: a.label, lease: life, guards: 1, since: a.m.events.start(),
		transacting: make(chan struct{}, 1), loss: make(chan struct{}, 1),
	}
	h.loss <- struct{}{}
	h.ctx, h.cancel = context.WithCancelCause(a.lineage(h))
	h.telling.Add(1) // whoever ends it from now on tells that after we have told of it
	defer h.telling.Done()
	a.m.owned.add(h) // before the term and the breaks are asked: whoever ends it from now on finds the guard
	refuse := func(err error) (*TryGuard, error) {
		h.end(err)
		a.m.owned.remove(h)
		return fail(err)
	}
	if err := a.term.Err(); err != nil { // the reply came too late to be trusted
		return refuse(&LostError{Name: a.request.Name, Fence: lock.Fence, Cause: err})
	}
	if a.m.owned.isBroken(h) {
		return refuse(&LostError{Name: a.request.Name, Fence: lock.Fence, Cause: errBroken})
	}
	if a.m.closing() {
		return refuse(ErrClosed)
	}
	if life != nil {
		if err := life.over(a.m.cfg.Clock); err != nil { // it ran out meanwhile
			return refuse(&LostError{Name: a.request.Name, Fence: lock.Fence, Cause: err})
		}
		a.m.loops.Go(h.watchLease) // ends with the guard
	}
	g := newGuard(h) // from here on the lock is given back, whatever panics
	g.ctx = &guardContext{h.ctx, g}
	event := a.m.log.Info().Str("lock", catalog.Printable(a.request.Name, 200)).
		Stringer("ts", a.request.TS).Int64("fence", lock.Fence).Str("why", catalog.Printable(a.request.Why, 200))
	if evidence != "" {
		event.Str("evidence", evidence).Msg("taken over")
	} else {
		event.Msg("acquired")
	}
	h.handed = true
	a.acquired(h)
	return g, nil
}

// undo takes this attempt out of the lock, whether it holds or waits, in the background: its caller
// does not wait for it.
func (a *attempt) undo() { a.m.pinger.ReleaseSoon(a.request.Session, a.term) }
