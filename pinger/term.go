package pinger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// Why a term ended. Every cause matches exactly one of these.
var (
	// ErrLapsed: no ping was acknowledged for the hold time.
	ErrLapsed = errors.New("no ping was acknowledged in time")
	// ErrCondemned: a contender declared the process dead.
	ErrCondemned = errors.New("the process was condemned by a contender")
	// ErrForked: the ping document is not as this process wrote it: a twin with the same process id
	// has pinged, or an operator edited or removed the document.
	ErrForked = errors.New("the ping document was changed by somebody else")
	// ErrStopped: the pinger was closed.
	ErrStopped = errors.New("the pinger was closed")
)

// An identity is a process id from the first ping under it until it is given up. All terms under it
// share it.
type identity struct {
	process string
	used    context.Context // ends when the id is given up; its cause is the reason
	giveUp  context.CancelCauseFunc
}

func newIdentity(process string) *identity {
	id := &identity{process: process}
	id.used, id.giveUp = context.WithCancelCause(context.Background())
	return id
}

// twins reports whether the id was given up to a twin: whatever stands under it is the twin's.
func (id *identity) twins() bool { return errors.Is(context.Cause(id.used), catalog.ErrTwin) }

// A Term is a stretch of time in which a process may trust its locks; see the package comment.
// Safe for concurrent use.
type Term struct {
	id    *identity
	hold  time.Duration
	clock clock.Clock
	done  chan struct{}

	mu   sync.Mutex    // guards sent and over
	sent clock.Reading // send of the last acknowledged ping
	over error
}

// Process returns the process id under which the term's locks are held.
func (t *Term) Process() string { return t.id.process }

// Done returns a channel that is closed when the term is known to be over. Err may know earlier.
func (t *Term) Done() <-chan struct{} { return t.done }

// Err returns nil while the term lasts and the cause once it is over. It computes from the clock on
// every call, so that a process that was paused sees the end before any timer has run.
// Once it has returned an error it never returns nil again.
func (t *Term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(t.clock.Now())
	return t.over
}

// Left returns how long the term will last if no further ping is acknowledged; 0 when it is over.
func (t *Term) Left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.judge(now)
	if t.over != nil {
		return 0
	}
	return t.hold - clock.HolderElapsed(t.sent, now)
}

// Age returns how long ago the last acknowledged ping was sent, as the holder counts it.
func (t *Term) Age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return clock.HolderElapsed(t.sent, t.clock.Now())
}

// Deadline returns the local wall clock time at which the term ends if no further ping is
// acknowledged. It is informational; a decision asks Err.
func (t *Term) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.Wall.Add(t.hold)
}

// renew makes the term last for the hold time after sent. It reports false, and changes nothing,
// when the term is over, be it only by this very reading (R4: loss is one way).
func (t *Term) renew(sent clock.Reading) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(t.clock.Now())
	if t.over != nil {
		return false
	}
	t.sent = sent
	return true
}

// end ends the term with cause if it is not over yet.
func (t *Term) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish(cause)
}

// judge ends the term when its hold time has passed. The caller holds mu.
func (t *Term) judge(now clock.Reading) {
	if passed := clock.HolderElapsed(t.sent, now); passed >= t.hold {
		t.finish(fmt.Errorf("%w: the last acknowledged one was sent %v ago, more than the hold time %v",
			ErrLapsed, passed.Round(time.Millisecond), t.hold))
	}
}

func (t *Term) finish(cause error) {
	if t.over == nil {
		t.over = cause
		close(t.done)
	}
}

// errUnproven says why a release waits.
var errUnproven = errors.New(
	"it waits for an acknowledged ping, since a twin may have the lock by now")

// Releasing returns the context in which a session of a term may be taken out of its lock now. A
// twin holds by the very sessions that this process had when the two became two, and only a ping
// tells of it:
//
//   - While a term of that process id is trusted the release may be sent: the term itself, or a
//     later one, which began with an acknowledged ping, so no twin had pinged until then.
//   - When the id was given up to a twin, whatever stands under it is the twin's. The error matches
//     [catalog.ErrTwin], and the context of a release that is under way ends.
//   - When the process was condemned, the release may be sent: no ping under that id succeeds any
//     more, whoever sends it, and a contender condemns only who was silent for the takeover time,
//     so that the guards of both are lost by their clocks. So it may when the ping document was
//     removed or cannot be read: a twin that closed had given back what it had, and one that lives
//     gives the id up with its next ping.
//   - Else the term is over by the clock, and the answer of the next ping is waited for.
func (p *LockPinger) Releasing(ctx context.Context, t *Term) (
	context.Context, context.CancelFunc, error,
) {
	switch {
	case t == nil:
		return nil, nil, errUnproven
	case t.id.twins():
		return nil, nil, context.Cause(t.id.used)
	case t.id.used.Err() == nil && t.Err() != nil:
		if now := p.Term(); now == nil || now.id != t.id {
			return nil, nil, errUnproven
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.id.used, func() {
		if t.id.twins() {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }, nil
}
