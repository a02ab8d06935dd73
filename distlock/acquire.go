package distlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// unseeded is the smallest fence that a guard may have. If the fence is smaller, as in a new lock
// document, the Manager replaces it by the time of the acquisition by the server's clock, in Unix
// milliseconds. So fences rise even after an operator deleted the document.
const unseeded = 1 << 31

// maxRaces limits the retries of a call after the lock document changed between two commands.
const maxRaces = 3

// A session is one acquisition of a lock. It belongs to a try or to a queue entry of an agent.
type session struct {
	want
	term     *pinger.Term
	request  catalog.Request
	how      catalog.EnterMode
	queued   bool     // the lock document may contain the session
	doubtful bool     // a command that enters the session has an unknown outcome
	evicted  eviction // the last dead process that the session evicted

	next atomic.Pointer[pendingEntry] // to be queued by the release of this session

	// The fields below are set once the session holds the lock.
	fence     int64
	fromQueue bool   // another session's command granted the lock
	lease     *lease // nil without a lease
	evidence  string // why a dead process was evicted for it, or ""
	previous  string // the dead process, if this session evicted it
}

type eviction struct {
	evidence string
	process  string
	fence    int64 // of the lock before the eviction
}

// begin makes a session and adds it to the owned sessions before any command is sent. The caller
// must end the session by [Manager.giveBack] or attemptEnded. Errors: [ErrClosed];
// [ErrNoHeartbeat].
func (m *Manager) begin(name string, w want, how catalog.EnterMode) (*session, error) {
	if clock.Over(m.closed) {
		return nil, acquiring(name, ErrClosed)
	}
	term := m.pinger.Term()
	if term == nil {
		return nil, noHeartbeat(name, m.pinger.Last())
	}
	s := &session{want: w, term: term, how: how, request: catalog.Request{
		Session:  catalog.Session{Name: name, TS: bson.NewObjectID()},
		Process:  term.Process(),
		Who:      fmt.Sprintf("%s:%s:%08x", term.Process(), w.label, rand.Uint32()),
		Why:      w.why,
		Takeover: m.cfg.Takeover,
		Mode:     w.mode,
		Limit:    w.limit,
	}}
	m.owned.mu.Lock()
	m.owned.attempts[s.request.TS] = true
	m.owned.mu.Unlock()
	if clock.Over(m.closed) { // Close may have read the owned sessions before
		m.owned.attemptEnded(s.request.TS)
		return nil, acquiring(name, ErrClosed)
	}
	return s, nil
}

// giveBack removes a session from its lock in the background. The session may hold the lock or wait
// for it.
func (m *Manager) giveBack(s *session) {
	m.pinger.ReleaseSoon(s.request.Session, s.term)
	m.owned.attemptEnded(s.request.TS)
}

// runTry acquires the lock for a try. If all calls of the try end before the server answers, the
// session goes to another call, or is removed from the lock.
func (a *agent) runTry(t *try) {
	defer a.m.recovered(a, nil, t)
	s, err := a.m.begin(a.name, t.want, catalog.Try)
	if err != nil {
		a.failed(err, nil, t)
		return
	}
	ended := false
	defer func() {
		if !ended { // after a panic
			a.m.giveBack(s)
		}
	}()
	err = a.tryWith(s, t)
	ended = true
	if err != nil {
		a.m.owned.attemptEnded(s.request.TS)
		a.failed(err, nil, t)
		return
	}
	a.granted(s, nil, t)
}

// recovered recovers from a panic in a try or an entry, for example in a logger, an observer or a
// store. The calls that the try or the entry serves get an error.
func (m *Manager) recovered(a *agent, e *entry, t *try) {
	if r := recover(); r != nil {
		err := fmt.Errorf("the logger or the store panicked: %v", r)
		a.failed(acquiring(a.name, err), e, t)
	}
}

// tryWith acquires the lock for a session. If dead processes hold the lock, tryWith evicts them and
// tries again. Errors: *HeldError; *PermitMismatchError; errors of the store.
func (a *agent) tryWith(s *session, t *try) error {
	for race := 0; ; race++ {
		enter := transition.Enter{Request: s.request, How: s.how}
		if race == 0 && s.mode == catalog.Exclusive {
			// TryPlain refuses some free locks, for example a lock in which a foreign lock manager left
			// shared holders. The next command also acquires these locks.
			enter.How = catalog.TryPlain
		}
		lock, _, err := a.m.locks.Apply(a.m.life, enter)
		if err == nil {
			return a.m.acquired(s, lock)
		}
		if !isRefusal(err) {
			return a.confirm(s, err)
		}
		a.in.mu.Lock()
		needed := t.calls > 0
		a.in.mu.Unlock()
		if !needed { // its calls have ended; the background evicts dead holders
			a.m.judge.WatchRefused(watch.View{Name: a.name})
			a.m.judge.EvictDue(a.name)
			return acquiring(a.name, err)
		}
		view, err := a.contend(s)
		if !errors.Is(err, errFree) {
			if errors.Is(err, ErrHeld) || errors.Is(err, ErrPermitMismatch) {
				a.m.judge.WatchRefused(view)
			}
			return err
		}
		if race >= maxRaces {
			held := a.m.heldError(view)
			held.Reason = "the server repeatedly refused it as not free, but showed it as free"
			return held
		}
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, catalog.ErrNotFree) || errors.Is(err, catalog.ErrQueueFull) ||
		errors.Is(err, catalog.ErrPermitMismatch)
}

// errFree means that the lock may be free, or that its queue may have room. The caller tries again.
var errFree = errors.New("free")

// contend reads the lock after the server refused the session, and evicts dead processes. It
// returns the view of the lock and an error. The error is errFree if the session may be sent again,
// else the reason for the refusal.
func (a *agent) contend(s *session) (view watch.View, err error) {
	for range maxRaces + 1 {
		if view, err = a.m.judge.Read(a.m.life, a.name); err != nil {
			return view, acquiring(a.name, err)
		}
		if err := view.Malformed(); err != nil {
			return view, acquiring(a.name, err)
		}
		if view.Free() {
			return view, a.grantNext(s, view)
		}
		if s.how == catalog.Queue {
			if passed, _ := a.m.judge.EvictSilent(a.m.life, view, len(view.Suspects)); passed > 0 {
				return view, errFree
			}
		}
		evicted, err := a.m.judge.EvictDead(a.m.life, view, len(view.Suspects))
		if n := len(evicted); n > 0 {
			if last := evicted[n-1]; !last.Dead.Waits {
				s.evicted = eviction{last.Evidence, last.Dead.Process, view.Lock.Fence}
			}
			return view, errFree
		}
		if err == nil {
			return view, a.answer(s, view)
		}
		if !errors.Is(err, catalog.ErrNoMatch) {
			return view, acquiring(a.name, err)
		}
	}
	return view, a.m.heldError(view)
}

// grantNext grants a free lock to its first waiter. This is necessary after a release by a foreign
// lock manager, which grants nothing. The error is errFree if the session may be sent again, else
// the reason for the refusal.
func (a *agent) grantNext(s *session, view watch.View) error {
	if view.Lock == nil || len(view.Lock.Waiters) == 0 {
		return errFree
	}
	_, grants, err := a.m.locks.Apply(a.m.life, transition.GrantNext{Name: a.name})
	if err == nil || errors.Is(err, catalog.ErrNoMatch) || errors.Is(err, catalog.ErrUnknownOutcome) {
		a.m.queue.Deliver(grants)
		return a.answer(s, view)
	}
	return fmt.Errorf("distlock: acquire %s: grant it to the next waiter: %w", quoted(a.name), err)
}

// answer returns errFree if a repeated acquisition can succeed, because the document contains the
// session or the queue has room. If the lock is used with another limit, answer returns a
// *PermitMismatchError. In all other cases it returns a *HeldError.
func (a *agent) answer(s *session, view watch.View) error {
	_, waits := view.Lock.WaitedBy(s.request.TS) // true after a lost reply
	_, holds := view.Lock.HeldBy(s.request.TS)
	held := a.m.heldError(view)
	if limit := view.OtherLimit(s.limit); limit != nil && !waits && !holds {
		text := "distlock: " + limit.Error() + "; " + held.facts()
		return &acquireError{text: text, causes: []error{limit}}
	}
	if waits || holds || s.how == catalog.Queue && view.Lock.RoomFor(s.request) {
		return errFree
	}
	return held
}

// confirm handles the error of a command that acquires the lock. If the outcome is unknown, confirm
// sends a write that searches the lock document for the session. If the session holds the lock,
// confirm returns nil. Otherwise the session may appear in the document later. It is then removed
// in the background.
func (a *agent) confirm(s *session, err error) error {
	failed := acquiring(a.name, err)
	if !errors.Is(err, catalog.ErrUnknownOutcome) {
		return failed
	}
	failed = doubtful(failed)
	if errors.Is(err, context.DeadlineExceeded) { // a second command would time out, too
		a.m.pinger.Doubt(s.term)
		a.m.pinger.ReleaseDoubtful(s.request.Session, s.term)
		return failed
	}
	var ask catalog.Transition = transition.Confirm{Request: s.request}
	if s.mode != catalog.Exclusive { // Enter finds the session, or acquires the lock
		ask = transition.Enter{Request: s.request, How: s.how}
	}
	lock, _, err := a.m.locks.Apply(a.m.life, ask)
	if err == nil {
		return a.m.acquired(s, lock)
	}
	a.m.pinger.Doubt(s.term)
	if !errors.Is(err, catalog.ErrNoMatch) && !errors.Is(err, catalog.ErrNotFree) {
		a.m.pinger.ReleaseLater(s.request.Session, s.term)
	}
	return failed
}

// acquired sets the fence and the evidence of a session that holds the lock, and begins its lease.
// If the fence is below unseeded, acquired raises the fence. After an error the session is removed
// from the lock in the background.
func (m *Manager) acquired(s *session, lock catalog.Lock) error {
	if p, ok := lock.HeldBy(s.request.TS); ok { // the lock may have several holders
		lock.Fence, lock.When = p.Fence, p.Since
	}
	for _, g := range lock.Grants {
		if g.TS == s.request.TS && g.Evidence != "" { // granted before the first reply arrived
			s.fromQueue, s.evidence = true, g.Evidence
		}
	}
	if e := s.evicted; e.evidence != "" && s.evidence == "" &&
		(lock.Fence == e.fence+1 || e.fence < unseeded) {
		s.evidence, s.previous = e.evidence, e.process
	}
	s.fence = lock.Fence
	var err error
	if s.fence < unseeded {
		err = m.seedFence(s, lock.When)
	}
	if err == nil && s.life > 0 {
		s.lease, err = m.beginLease(s)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		err = doubtful(err)
	}
	m.pinger.ReleaseSoon(s.request.Session, s.term)
	return acquiring(s.request.Name, err)
}

func (m *Manager) seedFence(s *session, acquired time.Time) error {
	seed := transition.SeedFence{Session: s.request.Session, AtLeast: acquired.UnixMilli()}
	lock, _, err := m.locks.Apply(m.life, seed)
	if err != nil {
		return fmt.Errorf("raise the fence: %w", err)
	}
	s.fence = lock.Fence
	return nil
}

// newGuard makes a guard for a session that holds the lock. After an error the session is removed
// from the lock. Errors: *LostError if the term or the lease has ended, or if an operator has
// broken the lock; [ErrClosed].
func (c *call) newGuard(s *session) (*TryGuard, error) {
	defer c.m.owned.attemptEnded(s.request.TS)
	fail := func(err error) (*TryGuard, error) {
		c.m.giveBack(s)
		return nil, acquiring(c.name, err)
	}
	s.want = c.o.want // of another call if that call gave up, see agent.serve
	h := &holding{
		session: s, m: c.m, guards: 1, since: c.m.cfg.Clock.Now().Mono,
		transacting: make(chan struct{}, 1),
	}
	above, _ := c.o.parent.Value(lineageKey{}).(*lineage)
	under := context.WithValue(c.o.parent, lineageKey{}, &lineage{h, above})
	h.ctx, h.cancel = context.WithCancelCause(under)
	h.reporting.Add(1) // a loss is reported after the acquisition
	defer h.reporting.Done()
	c.m.owned.mu.Lock()
	c.m.owned.holds[s.request.TS] = h // before lapsed: from here on the end of the term ends the guard
	// An operator may have broken the lock since the attempt began.
	broken := slices.ContainsFunc(c.m.owned.breaks, func(b lockBreak) bool { return b.of(h) })
	c.m.owned.mu.Unlock()
	refuse := func(err error) (*TryGuard, error) {
		h.end(err)
		c.m.owned.remove(h)
		return fail(err)
	}
	if err := h.lapsed(); err != nil { // the reply came too late to be trusted
		return refuse(&LostError{Name: c.name, Fence: s.fence, Cause: err})
	}
	if broken {
		return refuse(&LostError{Name: c.name, Fence: s.fence, Cause: errBroken})
	}
	if clock.Over(c.m.closed) {
		return refuse(ErrClosed)
	}
	if h.lease != nil {
		c.m.loops.Go(h.watchLease) // ends with the guard
	}
	g := &TryGuard{h: h}
	g.cleanup = runtime.AddCleanup(g, dropped, h) // from here on a panic does not leave the lock held
	g.ctx = &guardContext{h.ctx, g}
	event := c.m.log.Info().Str("lock", catalog.Printable(c.name, 200)).Stringer("ts", s.request.TS).
		Int64("fence", s.fence).Str("why", catalog.Printable(c.o.why, 200))
	if s.evidence != "" {
		event.Str("evidence", s.evidence).Msg("taken over")
	} else {
		event.Msg("acquired")
	}
	h.handed = true
	if c.m.events != nil {
		c.report(h, s)
	}
	return g, nil
}

func (c *call) report(h *holding, s *session) {
	kind := EventAcquired
	switch {
	case h.evidence != "" && !strings.HasPrefix(h.evidence, brokenWord):
		kind = EventTakenOver
	case s.fromQueue:
		kind = EventGranted
	}
	event := h.event(kind)
	event.Waited, event.Previous = c.m.cfg.Clock.Now().Mono-c.o.began, s.previous
	if kind == EventTakenOver && event.Previous == "" { // another process evicted the dead one
		event.Previous = subjectOf(h.evidence)
	}
	event.Rule, event.Evidence = ruleOf(h.evidence), h.evidence
	c.m.events.emit(c.o.parent, event)
}

// heldError describes the first living holder. If all holders are dead, it describes the first
// holder. If the lock is free, it describes the first waiter.
func (m *Manager) heldError(s watch.View) *HeldError {
	e := &HeldError{Name: s.Name, PingAge: -1, Holders: len(s.Holders())}
	if s.Lock != nil {
		e.Waiters, e.Mode = len(s.Lock.Waiters), modeWord(s.Lock.Mode)
		e.Fence, e.Permits = s.Lock.Fence, int(s.Lock.Limit)
	}
	if len(s.Suspects) == 0 {
		e.Reason = "it was free a moment ago"
		return e
	}
	in := s.Suspects[0]
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
		e.Reason = fmt.Sprintf("it has %d holders, which is the maximum; %s", n, e.Reason)
	}
	last := m.pinger.Last()
	e.Self = last != nil && in.Process == last.Process()
	if in.PingState.Ping != nil && !s.ServerTime.IsZero() {
		e.PingAge = max(0, s.ServerTime.Sub(in.PingState.Ping.At))
	}
	return e
}

// ofIt replaces the process id in the reason of a verdict by "it".
func ofIt(reason, process string) string {
	if process == "" {
		return reason
	}
	id := `"` + strings.ReplaceAll(catalog.Printable(process, 200), `"`, `\"`) + `"`
	its := strings.NewReplacer("the ping of "+id, "its ping", "ping of "+id, "its ping", id, "it")
	return its.Replace(reason)
}
