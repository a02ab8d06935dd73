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

// The causes of a term's end. Every cause matches exactly one of these.
var (
	// ErrLapsed: no ping was acknowledged for the hold time.
	ErrLapsed = errors.New("no ping was acknowledged in time")
	// ErrCondemned: a contender declared the process dead.
	ErrCondemned = errors.New("the process was condemned by a contender")
	// ErrForked: the ping document differs from the last ping of this process: a twin with the same
	// process id has pinged, or an operator edited or removed the document.
	ErrForked = errors.New("the ping document was changed by somebody else")
	// ErrStopped: the pinger was closed.
	ErrStopped = errors.New("the pinger was closed")
)

// An identity is a process id from its first ping to its end. All its terms share it.
type identity struct {
	process string
	used    context.Context // ends with the id; its cause is the reason
	giveUp  context.CancelCauseFunc
}

func newIdentity(process string) *identity {
	id := &identity{process: process}
	id.used, id.giveUp = context.WithCancelCause(context.Background())
	return id
}

// twins reports whether the id ended because of a twin: then its sessions are the twin's.
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

// renew makes the term last for the hold time after sent. It reports false, without a change,
// when the term is over, even if only by this very reading (R4: loss is one way).
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

// errUnproven is the reason why a release waits.
var errUnproven = errors.New(
	"it waits for an acknowledged ping, since a twin may have the lock by now")

// Releasing returns the context in which a session of a term may be removed from its lock now. A
// twin holds its locks by the very sessions that this process had when it was copied, and only a
// ping detects it:
//
//   - While a term of that process id is trusted the release may be sent: the term itself, or a
//     later one, which began with an acknowledged ping, so no twin had pinged until then.
//   - When the id ended because of a twin, its sessions are the twin's. The error matches
//     [catalog.ErrTwin], and the context of a release that was sent already ends.
//   - When the process was condemned, the release may be sent: no ping under that id succeeds any
//     more, neither of this process nor of a twin, and a contender condemns only a process that was
//     silent for the takeover time, so that the guards of both are lost by their clocks.
//   - The same is true when the ping document was removed or cannot be read: a twin that closed had
//     released its locks, and a twin that is active ends the id with its next ping.
//   - Otherwise the term is over by the clock, and the release waits for the next ping's reply.
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
