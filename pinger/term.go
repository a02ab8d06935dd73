package pinger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// The causes of the end of a term. Each cause matches exactly one of these errors.
var (
	// ErrLapsed means that no ping was acknowledged for the hold time.
	ErrLapsed = errors.New("no ping was acknowledged in time")
	// ErrCondemned means that a contender declared the process dead.
	ErrCondemned = errors.New("the process was condemned by a contender")
	// ErrForked means that the ping document differs from the last ping of this process. A second
	// process with the same id has pinged, or an operator edited or removed the document.
	ErrForked = errors.New("the ping document was changed by another writer")
	// ErrStopped means that the pinger was closed.
	ErrStopped = errors.New("the pinger was closed")
)

// An identity is the current process id of this process, or an id that was given up. All terms with
// the same id share one identity.
type identity struct {
	process string
	used    context.Context // ends when the id is given up; its cause is the reason
	giveUp  context.CancelCauseFunc
	doubted atomic.Bool // Doubt was called
}

func newIdentity(process string) *identity {
	id := &identity{process: process}
	id.used, id.giveUp = context.WithCancelCause(context.Background())
	return id
}

// twins reports whether the id was given up because of a twin, a second process with the same id.
// The sessions of the id then belong to the twin.
func (id *identity) twins() bool { return errors.Is(context.Cause(id.used), catalog.ErrTwin) }

// A Term is a period in which a process may trust its locks; see the package comment. It is safe
// for concurrent use.
type Term struct {
	id    *identity
	hold  time.Duration
	clock clock.Clock
	done  chan struct{}

	mu   sync.Mutex    // guards sent and over
	sent clock.Reading // when the last acknowledged ping was sent
	over error
}

// Process returns the process id under which the term's locks are held.
func (t *Term) Process() string { return t.id.process }

// Done returns a channel that is closed when the pinger detects the end of the term. Err may report
// the end earlier.
func (t *Term) Done() <-chan struct{} { return t.done }

// Err returns nil while the term lasts, and the cause of its end afterwards. Every call reads the
// clock, so a process that was paused detects the end immediately.
func (t *Term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge(t.clock.Now())
	return t.over
}

// Left returns the remaining time of the term: the hold time minus Age, or 0 once the term is over.
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

// Age returns the time since the send of the last acknowledged ping. It is the larger of the times
// by the monotonic clock and by the wall clock.
func (t *Term) Age() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return clock.HolderElapsed(t.sent, t.clock.Now())
}

// Deadline returns the local wall clock time at which the term ends if no further ping is
// acknowledged. It is for display; use Err for decisions.
func (t *Term) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.Wall.Add(t.hold)
}

// renew extends the term until the hold time has passed since the send of a ping. It returns false
// if the term is over, because a term that has ended is never renewed (R4 in docs/safety.md).
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

// end ends the term for the given cause, unless the term is already over.
func (t *Term) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish(cause)
}

// judge ends the term if its hold time has passed. The caller holds mu.
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

var errUnproven = errors.New(
	"it waits for an acknowledged ping, because a twin may hold the lock by now")

// Releasing returns a context for the removal of a session of term t from its lock, or an error if
// the removal must not be sent now. A twin is a copy of this process, and holds locks by copies of
// its sessions. Only a ping detects a twin. So these rules apply:
//
//   - While a term of the same process id lasts, the release may be sent. That term began
//     with an acknowledged ping, so no twin had pinged before.
//   - If the id was given up because of a twin, its sessions belong to the twin. The
//     error matches [catalog.ErrTwin]. The context of a release that was already sent
//     ends.
//   - If the process was condemned, the release may be sent. All later pings under the id
//     fail, also those of a twin. The process was silent for the takeover time, so all
//     guards under the id are lost.
//   - If the ping document was removed or cannot be read, the release may be sent. A twin
//     that closed has released its locks. A twin that runs takes a new id at its next
//     ping.
//   - If t is nil, or if the term is over by the clock, the release must wait for the
//     next acknowledged ping. Releasing returns an error.
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
