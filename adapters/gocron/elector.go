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

// pause is the time between a failed acquisition and the next try.
const pause = time.Second

// An Elector is a gocron.Elector. The leader is the process that holds the lock. Only the scheduler
// of the leader runs its jobs. To stop, shut down the scheduler first, then close the Elector, and
// then close its Manager. An Elector is safe for concurrent use.
type Elector struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu    sync.Mutex // guards guard and err
	guard *distlock.TryGuard
	err   error // the error of the last acquisition
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector. In the background the Elector queues for the lock with the given
// name and then holds it. It stops when Close is called, ctx ends, or m is closed. Errors:
// ErrConfig.
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
		if errors.Is(err, distlock.ErrClosed) {
			return
		}
		if err != nil {
			e.rest(ctx)
			continue
		}
		<-guard.Context().Done()
		e.set(nil, nil)
		_ = guard.Release() // a failed release continues in the background
	}
}

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
// guard is trusted. Otherwise it returns the error of a lost guard, or ErrNotLeader. If the last
// acquisition failed, its error is joined to ErrNotLeader. IsLeader does no I/O.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.guard == nil {
		return errors.Join(ErrNotLeader, e.err)
	}
	return e.guard.Err()
}

// Close gives up the leadership. It waits until the lock is released or ctx ends. A release that
// fails continues in the background.
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gocronlock: close: %w", context.Cause(ctx))
	}
}
