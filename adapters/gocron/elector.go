package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"mongodlm/distlock"
	"mongodlm/internal/leading"
)

// ErrNotLeader is returned by IsLeader in all processes except the leader.
var ErrNotLeader = errors.New("gocronlock: another process is the leader")

// pause is the pause after a failure to acquire.
const pause = time.Second

// An Elector is a gocron.Elector. Its leader is the process that holds a lock. All jobs of a
// scheduler run on the leader. To stop, shut down the scheduler first, then close the Elector, and
// then its Manager. An Elector is safe for concurrent use.
type Elector struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the loop is over

	mu    sync.Mutex // guards guard and err
	guard *distlock.TryGuard
	err   error // the error of the last acquisition
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector. It takes part in the election of that name, in the background,
// until Close is called or ctx ends. Errors: ErrConfig.
func NewElector(ctx context.Context, m *distlock.Manager, name string) (*Elector, error) {
	if ctx == nil || m == nil || name == "" {
		return nil, fmt.Errorf("%w: the context or the Manager is nil, or the name is empty", ErrConfig)
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &Elector{cancel: cancel, done: make(chan struct{})}
	go e.run(ctx, m.Internal(leading.Key{}).Standby(name))
	return e, nil
}

func (e *Elector) run(ctx context.Context, l *distlock.DistributedLock) {
	defer close(e.done)
	for ctx.Err() == nil {
		guard, err := l.Lock(ctx, distlock.Label("gocron"), distlock.Why("leads the scheduler"))
		e.set(guard, err)
		if err != nil {
			e.rest(ctx)
			continue
		}
		<-guard.Context().Done()
		e.set(nil, nil)
		_ = guard.Release() // reports a loss; a failed release continues in the background
	}
}

// rest pauses after a failure. IsLeader returns the failure meanwhile.
func (e *Elector) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	<-ctx.Done()
}

func (e *Elector) set(guard *distlock.TryGuard, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.guard, e.err = guard, err
}

// IsLeader implements gocron.Elector. It returns nil while this process holds the lock and its
// guard is trusted. It does no I/O. Errors: ErrNotLeader, with the reason if the acquisition
// failed; after a loss, the error of the guard.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.guard == nil {
		return errors.Join(ErrNotLeader, e.err)
	}
	return e.guard.Err()
}

// Close resigns. It waits until the lock is released or ctx ends.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gocronlock: close: %w", context.Cause(ctx))
	}
}
