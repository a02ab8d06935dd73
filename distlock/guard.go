package distlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/pinger"
)

// A TryGuard is a held lock. It is trusted until its [TryGuard.Deadline], which every acknowledged
// ping of the process moves on; a lost guard stays lost. mongos: dist_lock_try.
//
// Safe for concurrent use, and any goroutine may release it; it must not be copied. If it is
// dropped without Release, and so are its contexts, the garbage collector finds it: it is logged
// and released after the next ping. A goroutine that only waits for Done does not keep it.
type TryGuard struct {
	h        *holding
	ctx      *guardContext // of all guards of an acquisition the same
	cleanup  runtime.Cleanup
	released atomic.Bool

	mu      sync.Mutex // guards the fields below
	last    bool       // its release was that of the lock, which has the outcome
	outcome error      // of its release where it was not
}

// holding is a guard without the handle that its user has.
type holding struct {
	m        *Manager
	session  catalog.Session
	process  string
	why      string
	label    string
	mode     catalog.Mode
	limit    int32
	fence    int64
	evidence string
	term     *pinger.Term
	since    time.Duration // monotonic time at which it was acquired, if somebody observes
	lease    *lease        // nil when it has none
	ctx      context.Context
	cancel   context.CancelCauseFunc

	ended atomic.Pointer[error] // why the guard is over; set once

	telling sync.WaitGroup // until its acquisition was told, or will not be
	handed  bool           // its acquisition was told; read after telling
	loss    chan struct{}  // one element, which is gone when its loss is told

	transacting chan struct{} // one element while a transaction is under way

	mu      sync.Mutex    // guards guards and freed
	guards  int           // how many guards there are of it, see Reenter
	freed   chan struct{} // closed when the release is done; nil before it begins
	outcome error         // of the release, once freed is closed
}

// Name returns the lock's name.
func (g *TryGuard) Name() string { return g.h.session.Name }

// Session returns the lock session, the field ts of the lock document.
func (g *TryGuard) Session() bson.ObjectID { return g.h.session.TS }

// Process returns the process id under which the lock is held.
func (g *TryGuard) Process() string { return g.h.process }

// Fence returns the fencing token: larger than that of every earlier guard of the name, across
// releases, takeovers, breaks and a deletion of the document. A foreign holder does not raise it.
// Give it to what the lock protects, which refuses a smaller one; not with [Shared] and [Permits],
// of which several guards are valid at a time. No I/O.
func (g *TryGuard) Fence() int64 { return g.h.fence }

// TakeoverEvidence returns the evidence that the holder before was dead, else "".
func (g *TryGuard) TakeoverEvidence() string { return g.h.evidence }

// Context returns a context that ends when the guard is lost, released or closed, or when the
// context given to the acquisition ends, with the lock still held. [context.Cause] matches
// [ErrLockLost], [ErrReleased] or [ErrClosed], or is the parent's.
func (g *TryGuard) Context() context.Context { return g.ctx }

// Err returns nil while the guard may be trusted, a *LostError once it is lost, [ErrReleased] or
// [ErrClosed] afterwards, and [ErrBadOption] for a nil guard. It computes from the clock on every
// call, so a process that was paused sees the loss before any timer has run. No I/O.
func (g *TryGuard) Err() error {
	if g == nil {
		return fmt.Errorf("%w: the guard is nil", ErrBadOption)
	}
	err := g.h.err()
	if err == nil && g.released.Load() {
		return ErrReleased // another guard of the same acquisition still holds the lock
	}
	return err
}

// Deadline returns the local wall clock time until which the guard is trusted if no further ping is
// acknowledged, or the end of its [Lease] if that is earlier. It is for people and time-outs: to
// know whether to trust the guard, ask Err. No I/O.
func (g *TryGuard) Deadline() time.Time {
	deadline := g.h.term.Deadline()
	if l := g.h.lease; l != nil && l.deadline().Before(deadline) {
		return l.deadline()
	}
	return deadline
}

// Verify asks the server whether this guard holds the lock, by one read, linearizable on a replica
// set. Nil means that it did at some instant inside the call; a *LostError that it did not, and the
// guard is lost then. Any error that is not of Err means that the server could not be asked.
func (g *TryGuard) Verify(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if err := g.Err(); err != nil {
		return err
	}
	ctx, done := g.h.m.whileOpen(ctx)
	defer done()
	return g.h.check(ctx)
}

// Release frees the lock if this guard still holds it, and touches nothing if another holder has
// it: it names the lock session, where mongos 1.8 named only _id. Where [TryGuard.Reenter] was used
// the last release frees it. It works although the context of the acquisition has ended. One
// command; after a failure up to three, with pauses of 2 and 4 s, and not beyond the end of
// [Manager.Close].
//
// Errors: nil when the lock was freed while the guard was trusted. A *LostError when the guard was
// lost before, whether or not the document could be freed; the background frees it after an
// acknowledged ping, unless a twin may have the lock. An error that matches [ErrClosed] when Close
// freed the lock before. A *ReleaseError when every try failed. Releasing again waits for the first
// release and returns the same. A nil guard returns nil, so Release may be deferred before the
// error is looked at.
func (g *TryGuard) Release() error {
	if g == nil {
		return nil
	}
	return g.releaseWithin(g.h.m.life)
}

func (g *TryGuard) releaseWithin(ctx context.Context) error {
	defer runtime.KeepAlive(g)
	if g.giveUp(g.h.broken()) {
		return g.h.release(ctx, ErrReleased)
	}
	return g.outcome
}

// giveUp takes the guard off the count, once, and reports whether it was the last one of its lock.
// broken is the outcome if it was not.
func (g *TryGuard) giveUp(broken error) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.released.Swap(true) {
		g.cleanup.Stop()
		g.last, g.outcome = g.h.lastGuard(), broken
	}
	return g.last
}

// Reenter acquires the lock once more for the caller that has this guard, and returns a guard of
// its own: as many releases as acquisitions, as with PostgreSQL's advisory locks. Session, fence,
// deadline and context are the same; the context ends with the last release. No I/O. Errors: those
// of Err.
func (g *TryGuard) Reenter() (*TryGuard, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	if !g.h.anotherGuard() {
		return nil, ErrReleased
	}
	again := newGuard(g.h)
	again.ctx = g.ctx
	return again, nil
}

// anotherGuard counts a further guard; false when the last one has been released.
func (h *holding) anotherGuard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guards == 0 {
		return false
	}
	h.guards++
	return true
}

// givenBack reports whether the lock was released, or is being.
func (h *holding) givenBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.freed != nil
}

// lastGuard takes one guard off the count and reports whether it was the last.
func (h *holding) lastGuard() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guards--
	return h.guards == 0
}

func (h *holding) err() error {
	if ended := h.ended.Load(); ended != nil {
		return *ended
	}
	if err := h.term.Err(); err != nil {
		h.lose(err)
		return *h.ended.Load()
	}
	if err := h.lease.over(h.m.cfg.Clock); err != nil {
		h.lose(err)
		return *h.ended.Load()
	}
	return nil
}

// lose marks the guard as lost and ends its context. Loss is one way (I4).
func (h *holding) lose(cause error) {
	if h.endLost(cause) {
		h.tellLoss()
	}
}

// endLost is lose without telling of it, and reports whether the guard was not over before.
func (h *holding) endLost(cause error) bool {
	return h.end(&LostError{Name: h.session.Name, Fence: h.fence, Cause: cause})
}

// tellLoss tells of a loss, if there is one, once, after the acquisition and before the release. It
// blocks while another goroutine reports the acquisition or the release; never call it from those.
func (h *holding) tellLoss() {
	var lost *LostError
	if err := h.ended.Load(); err == nil || !errors.As(*err, &lost) || !h.wasHanded() {
		return
	}
	if _, first := <-h.loss; !first {
		return
	}
	defer close(h.loss)
	h.m.log.Warn().Str("lock", catalog.Printable(h.session.Name, 200)).
		Stringer("ts", h.session.TS).Int64("fence", h.fence).AnErr("cause", lost.Cause).Msg("lost")
	h.over(EventLost, 0, lost)
}

// wasHanded reports whether the acquisition was told: nothing is told of a guard that nobody ever
// got.
func (h *holding) wasHanded() bool {
	h.telling.Wait()
	return h.handed
}

func (h *holding) end(why error) bool {
	first := h.ended.CompareAndSwap(nil, &why)
	if first {
		h.cancel(why)
		h.lease.ended()
	}
	return first
}

func (h *holding) check(ctx context.Context) error {
	if err := h.err(); err != nil {
		return err
	}
	lock, err := h.m.locks.Read(ctx, h.session.Name)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		h.lose(errDocumentGone)
	case errors.Is(err, catalog.ErrMalformed):
		h.lose(err)
	case err != nil && h.err() == nil:
		return fmt.Errorf("distlock: check %s: %w", quoted(h.session.Name), err)
	case err != nil: // it is over meanwhile
	case !lock.Held || !lock.HeldAs(h.session.TS, h.process):
		h.lose(fmt.Errorf("the server shows another session: %s", describeHolder(lock)))
	}
	return h.err()
}

func describeHolder(l catalog.Lock) string {
	if !l.Held {
		return fmt.Sprintf("free, fence %d", l.Fence)
	}
	return fmt.Sprintf("held by %s, fence %d", catalog.Printable(l.Process, 200), l.Fence)
}

// broken says why the lock was not held until now; nil when it was.
func (h *holding) broken() error {
	err := h.err()
	if errors.Is(err, ErrClosed) && !errors.Is(err, ErrLockLost) {
		return fmt.Errorf("distlock: release %s: %w before the guard was released",
			quoted(h.session.Name), ErrClosed)
	}
	return err
}

// release ends the guard and frees the document, once, or waits for the release that is under way,
// both within ctx. why becomes the cause of the context.
func (h *holding) release(ctx context.Context, why error) error {
	h.mu.Lock()
	freed, first := h.freed, h.freed == nil
	if first {
		freed = make(chan struct{})
		h.freed = freed
	}
	h.mu.Unlock()
	if first {
		defer close(freed)
		start := h.m.events.start()
		h.outcome = h.failed(0, errors.New("the release panicked"))
		h.outcome = h.free(ctx, why)
		h.released(start)
		return h.outcome
	}
	select {
	case <-freed:
		return h.outcome
	default:
	}
	select {
	case <-freed:
		return h.outcome
	case <-ctx.Done():
		h.m.pinger.ReleaseLater(h.session, h.term) // it may be held still
		lost := h.broken()
		if errors.Is(lost, ErrReleased) {
			lost = nil // the other release did that
		}
		return errors.Join(lost, h.failed(0, context.Cause(ctx)))
	}
}

func (h *holding) free(ctx context.Context, why error) error {
	lost := h.broken() // before the first try is sent: afterwards it cannot be told (I6)
	h.end(why)
	h.tellLoss()
	defer h.m.owned.remove(h) // after ReleaseLater, so that the reaper sees no gap
	tries, err := h.tryRelease(ctx)
	switch {
	case errors.Is(err, catalog.ErrTwin) && !errors.Is(lost, ErrLockLost): // found since
		return &LostError{Name: h.session.Name, Fence: h.fence, Cause: err} // and nothing is left to release
	case tries == 0 && errors.Is(lost, ErrLockLost): // a twin may have it by now
		h.m.pinger.ReleaseLater(h.session, h.term)
		return lost
	case err == nil || errors.Is(err, catalog.ErrNoMatch):
		if err != nil && !errors.Is(lost, ErrLockLost) {
			lost = &LostError{Name: h.session.Name, Fence: h.fence,
				Cause: errors.New("somebody else holds the lock, nothing was changed")}
		}
		h.m.log.Info().Str("lock", catalog.Printable(h.session.Name, 200)).
			Stringer("ts", h.session.TS).Int64("fence", h.fence).Bool("was_held", err == nil).
			Msg("released")
		return lost
	default:
		h.m.pinger.ReleaseLater(h.session, h.term)
		return errors.Join(lost, h.failed(tries, err))
	}
}

// failed is the error of a release after which the lock may be held still.
func (h *holding) failed(tries int, err error) error {
	if h.m.life.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return &ReleaseError{Name: h.session.Name, Fence: h.fence, Tries: tries, Err: err}
}

// tryRelease frees the document by its session, three tries by default, as mongos. A try after one
// of unknown outcome that matches nothing means that the unknown one was applied, as long as the
// term and the lease last: nobody else may have taken the lock by then.
func (h *holding) tryRelease(ctx context.Context) (tries int, err error) {
	unknown := false
	last := h.m.closing()
	for pause := h.m.cfg.ReleasePause; ; pause *= 2 {
		try, done, refused := h.m.pinger.Releasing(ctx, h.term)
		if refused != nil {
			return tries, errors.Join(err, refused)
		}
		tries++
		err = h.releaseOnce(try)
		done()
		if err == nil || unknown && errors.Is(err, catalog.ErrNoMatch) && h.intact() {
			return tries, nil
		}
		if errors.Is(err, catalog.ErrNoMatch) {
			return tries, err
		}
		unknown = unknown || errors.Is(err, catalog.ErrUnknownOutcome)
		if last || tries >= h.m.cfg.ReleaseTries || ctx.Err() != nil {
			return tries, err
		}
		if last = !h.rest(ctx, pause); ctx.Err() != nil {
			return tries, err
		}
	}
}

// intact reports whether the guard would be trusted still if it had not been ended.
func (h *holding) intact() bool {
	return h.term.Err() == nil && h.lease.over(h.m.cfg.Clock) == nil
}

// rest pauses between two tries. It reports false when the Manager is being closed, which leaves
// one last try, or ctx has ended.
func (h *holding) rest(ctx context.Context, pause time.Duration) bool {
	timer := h.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-h.m.closed:
	case <-ctx.Done():
	}
	return false
}

func (h *holding) releaseOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.m.cfg.CommandTimeout)
	defer cancel()
	return h.m.owned.ReleaseInStore(ctx, h.session)
}

// newGuard hands a holding out. From here on the owned sessions and the garbage collector watch it.
func newGuard(h *holding) *TryGuard {
	g := &TryGuard{h: h}
	g.cleanup = runtime.AddCleanup(g, dropped, h)
	return g
}

// dropped runs when the garbage collector finds a guard that was not released. It only takes note:
// it runs on the collector's goroutine. The next Sweep does the rest.
func dropped(h *holding) {
	if !h.lastGuard() {
		return
	}
	h.m.owned.mu.Lock()
	defer h.m.owned.mu.Unlock()
	h.m.owned.dropped = append(h.m.owned.dropped, h)
}

var errDocumentGone = errors.New("the lock document was removed")
