package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
	"mongodlm/internal/metrics"
)

// A Leadership is one term of a leader. It is the guard of the lock, and is trusted while its
// method Err returns nil. With a [Lease], the function must call the method Renew. The method
// Release does not end the term. To end the term, return from the function. Do not use a Leadership
// after its function has returned.
type Leadership struct {
	*distlock.TryGuard
	term *term
}

// YieldRequested returns a channel that closes when [Election.RequestYield] asks this leader to
// resign. The end of the term does not close the channel. After the first call of YieldRequested,
// the process reads the lock about every Config.PollMax, together with the locks of its other
// elections.
func (l *Leadership) YieldRequested() <-chan struct{} {
	l.term.ask.Do(func() { go l.term.heed() })
	return l.term.yield
}

// YieldReason returns the reason that was passed to [Election.RequestYield]. It returns "" before
// the channel of YieldRequested closes.
func (l *Leadership) YieldReason() string {
	select {
	case <-l.term.yield:
		return l.term.reason
	default:
		return ""
	}
}

// A term is the time from an acquisition of the lock to its release.
type term struct {
	e      *Election
	guard  *distlock.TryGuard // the outer guard; the function has an inner guard
	ctx    context.Context
	cancel context.CancelCauseFunc
	cause  error // resignation, hand-over or loss; set before done is closed

	done    chan struct{} // closed after the release of the lock
	outcome error         // the error of the release; set before done is closed

	ask    sync.Once
	yield  chan struct{}
	reason string // set before yield is closed

	mu   sync.Mutex // guards the field over
	over bool       // the function has returned
}

func newTerm(e *Election, guard *distlock.TryGuard) *term {
	t := &term{e: e, guard: guard, done: make(chan struct{}), yield: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(guard.Context())
	return t
}

// lead calls the function. It releases the lock after the function has returned or called
// runtime.Goexit. It returns the error of the function. If that error only reports the end of the
// context, lead returns nil.
func (t *term) lead(fn Func, clk clock.Clock) error {
	t.e.term.Store(t)
	returned := make(chan struct{}) // closed when fn has returned
	defer close(t.done)
	defer func() { // runs also when fn panics or calls runtime.Goexit
		t.e.term.Store(nil)
		close(returned)
		t.finish()
		t.outcome = t.guard.Release()
	}()
	defer context.AfterFunc(t.ctx, func() { t.complain(clk, returned) })()
	// Close of the Manager waits for fn before it releases the lock.
	defer t.e.manager.Internal(leading.Key{}).Use(t.guard)()
	inner, err := t.guard.Reenter()
	if err != nil {
		return nil // lost before the function began: Release returns that error
	}
	if t.ctx.Err() != nil {
		_ = inner.Release() // no I/O; the outer Release returns the error
		return nil
	}
	defer inner.Release() // no I/O; the outer guard keeps the lock
	failed := t.call(fn, &Leadership{TryGuard: inner, term: t})
	end := t.ctx.Err()
	if end != nil && (errors.Is(failed, context.Canceled) || errors.Is(failed, end) ||
		errors.Is(failed, context.Cause(t.ctx))) {
		return nil
	}
	return failed
}

func (t *term) call(fn Func, l *Leadership) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	defer metrics.Leading(t.e.observer(), t.ctx, label, t.e.name)()
	return leading.Asked(fn(t.ctx, l))
}

func panicked(value any) *PanicError {
	return &PanicError{Value: fmt.Sprint(value), Stack: string(debug.Stack())}
}

// complain logs a warning if the leader's function has not returned half of Config.Margin after the
// end of its context.
func (t *term) complain(clk clock.Clock, returned <-chan struct{}) {
	patience := t.e.manager.Config().Margin / 2
	if clock.Sleep(clk, patience, returned) {
		t.e.log(context.Cause(t.ctx)).Int64("fence", t.guard.Fence()).Dur("after", patience).
			Msg("the leader's function ignores the end of its context")
	}
}

// stop ends the function's context, with why as the cause. The first call determines the cause.
// stop returns false if the function has already returned.
func (t *term) stop(why error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	if t.cause == nil {
		t.cause = why
	}
	t.cancel(why)
	return true
}

// finish marks the term as over and ends its context.
func (t *term) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cause == nil && t.guard.Err() != nil {
		t.cause = t.guard.Err()
	}
	t.cancel(distlock.ErrReleased)
}

func (t *term) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.outcome
	case <-ctx.Done():
		return t.e.failed("wait for the end of a term of", context.Cause(ctx))
	}
}

// heed closes t.yield when a request to yield arrives. It returns after that, or when t.ctx ends.
func (t *term) heed() {
	for now, err := range t.e.manager.Internal(leading.Key{}).Watch(t.ctx, t.e.name) {
		if err != nil || now == nil || now.YieldBy == "" || now.Session != t.guard.Session() {
			continue
		}
		if t.ctx.Err() == nil && t.guard.Err() == nil {
			t.reason = now.YieldWhy
			close(t.yield)
		}
		return
	}
}

func (e *Election) log(err error) *zerolog.Event {
	log := e.manager.Config().Logger
	event := log.Warn().Str("election", catalog.Printable(e.name, 200)).AnErr("cause", err)
	if panicked, is := errors.AsType[*PanicError](err); is {
		event = event.Str("stack", panicked.Stack)
	}
	return event
}
