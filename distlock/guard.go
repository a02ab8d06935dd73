package distlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// A TryGuard is a held lock, in mongos dist_lock_try. It is trusted until the [TryGuard.Deadline],
// which acknowledged pings extend. A lost guard stays lost.
//
// A TryGuard is safe for concurrent use and must not be copied. Any goroutine may release it. If an
// unreleased guard and its contexts become unreachable, the lock is released after the next ping,
// with a warning in the log.
type TryGuard struct {
	h        *holding
	ctx      *guardContext
	cleanup  runtime.Cleanup
	released atomic.Bool

	release sync.Once // sets the fields below
	last    bool      // this guard was released last; the holding stores the outcome
	outcome error     // of the release, if another guard remained
}

// A holding is the state that all guards of one acquisition share.
type holding struct {
	*session
	m      *Manager
	since  time.Duration // monotonic time of the acquisition
	ctx    context.Context
	cancel context.CancelCauseFunc

	ended atomic.Pointer[error] // why the guard ended; set once

	reporting sync.WaitGroup // done when the acquisition is reported, or will not be reported
	handed    bool           // the acquisition was reported; read after reporting
	loss      sync.Once      // reports the loss

	transacting chan struct{} // one element during a transaction

	mu       sync.Mutex    // guards the fields uses, returned, guards and freed
	uses     int           // number of functions that run under the guard; see use
	returned chan struct{} // closed when such a function returns; nil if no call waits for it
	guards   int           // number of guards; see Reenter
	freed    chan struct{} // closed when the release is done; nil before the release begins
	outcome  error         // of the release, once freed is closed
}

// The lineage of a context lists the guards from whose contexts the context derives. A caller with
// that context holds these guards.

type lineageKey struct{}

// A lineage is a linked list: the guard that was acquired last, and the lineage of the earlier
// guards.
type lineage struct {
	h     *holding
	above *lineage
}

// A guardContext is the context that [TryGuard.Context] and [Guards.Context] return. It refers to
// the guards, so that the guards stay reachable while a caller has the context or a derived one. If
// a derived context is never cancelled, the lock stays held, which is safe.
type guardContext struct {
	context.Context     // the holding's context
	keeps           any // the guard or the guards
}

// Name returns the lock's name.
func (g *TryGuard) Name() string { return g.h.request.Name }

// Session returns the lock session, the field ts of the lock document.
func (g *TryGuard) Session() bson.ObjectID { return g.h.request.TS }

// Process returns the process id under which the lock is held.
func (g *TryGuard) Process() string { return g.h.request.Process }

// Fence returns the fencing token, which is larger than that of every earlier guard of the name,
// also after releases, takeovers, breaks and deletions. The protected resource should refuse a
// write whose fence is smaller than the largest one that it has seen. With [Shared] and [Permits]
// several fences are valid at the same time. Foreign programs hold locks without a fence. No I/O.
func (g *TryGuard) Fence() int64 { return g.h.fence }

// TakeoverEvidence returns the evidence that the previous holder was dead, "broken: " and the
// reason if an operator broke the lock, or "".
func (g *TryGuard) TakeoverEvidence() string { return g.h.evidence }

// Context returns a context that ends when the guard is lost or released, or when the Manager is
// closed. Its [context.Cause] then matches ErrLockLost, ErrReleased or ErrClosed. It also ends, for
// the same cause, when the context of the acquisition ends. The lock then stays held.
func (g *TryGuard) Context() context.Context { return g.ctx }

// Err returns nil while the guard may be trusted, else a *LostError, [ErrReleased], [ErrClosed] if
// its Manager was closed, or [ErrBadOption] for a nil guard. Every call reads the clock, so a
// paused process detects the loss before a timer runs. No I/O.
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

// Deadline returns the time, by the local wall clock, until which the guard is trusted if no
// further ping is acknowledged. If the [Lease] ends earlier, Deadline returns that time. Use Err to
// check the guard. No I/O.
func (g *TryGuard) Deadline() time.Time {
	deadline := g.h.term.Deadline()
	if l := g.h.lease; l != nil && l.deadline().Before(deadline) {
		return l.deadline()
	}
	return deadline
}

// Verify asks the server whether this guard holds the lock, by one read, which is linearizable on a
// replica set. Nil means that the guard held the lock at some instant during the call. Errors: as
// Err; any other means that the server did not answer.
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

// Reenter returns another guard of the same acquisition. Each guard must be released. All have the
// same session, fence and deadline, and the contexts of all end with the last release. No I/O.
// Errors: as Err.
func (g *TryGuard) Reenter() (*TryGuard, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if g.h.guards == 0 { // the last guard was released
		return nil, ErrReleased
	}
	g.h.guards++
	again := &TryGuard{h: g.h}
	again.cleanup = runtime.AddCleanup(again, dropped, g.h)
	again.ctx = &guardContext{g.ctx, again} // keeps g reachable
	return again, nil
}

func (h *holding) givenBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.freed != nil
}

// lastGuard removes a guard from the count, and reports whether that guard was the last one.
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
	err := h.lapsed()
	if err == nil {
		return nil
	}
	h.lose(err)
	return *h.ended.Load()
}

func (h *holding) lapsed() error {
	if err := h.term.Err(); err != nil || h.lease == nil {
		return err
	}
	return h.lease.over(h.m.cfg.Clock)
}

// lose marks the guard as lost and ends its context. A lost guard is never trusted again
// (docs/safety.md, I4).
func (h *holding) lose(cause error) {
	if h.endLost(cause) {
		h.reportLoss()
	}
}

// endLost does the same as lose, but without the report. It returns false if the guard had already
// ended.
func (h *holding) endLost(cause error) bool {
	return h.end(&LostError{Name: h.request.Name, Fence: h.fence, Cause: cause})
}

// reportLoss reports a loss once, after the acquisition and before the release. If the guard is not
// lost, it does nothing. It waits while another goroutine reports the acquisition or the same loss.
func (h *holding) reportLoss() {
	var lost *LostError
	if err := h.ended.Load(); err == nil || !errors.As(*err, &lost) || !h.wasHanded() {
		return
	}
	h.loss.Do(func() {
		h.m.log.Warn().Str("lock", catalog.Printable(h.request.Name, 200)).
			Stringer("ts", h.request.TS).Int64("fence", h.fence).AnErr("cause", lost.Cause).Msg("lost")
		h.report(EventLost, 0, lost)
	})
}

// report sends an event of a guard to the Observer. The parameter took is the duration of a
// release, else 0.
func (h *holding) report(kind EventKind, took time.Duration, err error) {
	if h.m.events == nil {
		return
	}
	event := h.event(kind)
	event.Waited, event.Held, event.Err = took, h.m.cfg.Clock.Now().Mono-h.since, err
	h.m.events.emit(h.ctx, event)
}

func (h *holding) event(kind EventKind) Event {
	return Event{
		Kind: kind, Name: h.request.Name, Why: h.why, Mode: modeWord(h.mode), Process: h.request.Process,
		Session: h.request.TS, Fence: h.fence, Label: h.label,
	}
}

// wasHanded waits for the report of the acquisition. It returns false if no caller received the
// guard. Then the guard has no events.
func (h *holding) wasHanded() bool {
	h.reporting.Wait()
	return h.handed
}

func (h *holding) end(why error) bool {
	first := h.ended.CompareAndSwap(nil, &why)
	if first {
		h.cancel(why)
		if h.lease != nil {
			close(h.lease.gone)
		}
	}
	return first
}

func (h *holding) check(ctx context.Context) error {
	if err := h.err(); err != nil {
		return err
	}
	lock, err := h.m.locks.Read(ctx, h.request.Name)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		h.lose(errDocumentGone)
	case errors.Is(err, catalog.ErrMalformed):
		h.lose(err)
	case err != nil && h.err() == nil:
		return failedTo("check", h.request.Name, err)
	case err != nil: // the guard has ended
	case !lock.Held || !lock.HeldAs(h.request.TS, h.request.Process):
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

// dropped is called when a guard becomes unreachable without a release. It runs in the garbage
// collector's goroutine, so it only records the guard. The next Sweep releases the lock.
func dropped(h *holding) {
	if h.lastGuard() {
		h.m.owned.mu.Lock()
		defer h.m.owned.mu.Unlock()
		h.m.owned.dropped = append(h.m.owned.dropped, h)
	}
}

type transactionOf struct{ h *holding }

// A transaction is one call of InTransaction.
type transaction struct {
	renewed bool          // the current run has renewed the lease
	sent    clock.Reading // when the last renewal was sent
}

func (h *holding) transaction(ctx context.Context) *transaction {
	t, _ := ctx.Value(transactionOf{h}).(*transaction)
	return t
}

// excludeTransactions prevents transactions of the guard until the returned function is called.
// First it waits for a running transaction, for at most Config.CommandTimeout. If ctx belongs to
// the running transaction, excludeTransactions does nothing.
func (h *holding) excludeTransactions(ctx context.Context) (done func(), err error) {
	if h.transaction(ctx) != nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.m.cfg.CommandTimeout)
	defer cancel()
	select {
	case h.transacting <- struct{}{}:
		return func() { <-h.transacting }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("a transaction of this guard is running; inside it, use the context of "+
			"its work, otherwise wait for its end: %w", context.Cause(ctx))
	}
}

// owned returns the unreleased guards of a lock in the lineage of ctx. Lost guards are included,
// because their lock is held until a release or a takeover.
func owned(ctx context.Context, name string) (own []*holding) {
	under, _ := ctx.Value(lineageKey{}).(*lineage)
	for ; under != nil; under = under.above {
		if under.h.request.Name == name && !under.h.givenBack() && !slices.Contains(own, under.h) {
			own = append(own, under.h)
		}
	}
	return own
}

// heldByCaller returns a *DeadlockError if a call would wait for a lock that its own caller holds.
// It sends no command.
func (m *Manager) heldByCaller(ctx context.Context, name string, o acquireOptions) error {
	if o.bounded && o.wait == 0 {
		return nil // the call does not wait
	}
	permits := 0
	for _, h := range owned(ctx, name) {
		switch {
		case h.m != m || h.limit != o.limit || h.err() != nil:
			// The new call does not wait for this guard. The guard may belong to another Manager, and so to
			// another store. It may be lost. If it has another limit, the server refuses the call
			// immediately.
			continue
		case o.mode == catalog.Permit:
			if permits++; permits < int(o.limit) {
				continue
			}
		case o.mode == catalog.Shared && h.mode == catalog.Shared:
			continue
		}
		return &DeadlockError{Name: name, Why: h.why}
	}
	return nil
}
