package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Callers in three processes use one lock while commands are delayed, refused, lost or applied
// late. Two conflicting guards are never valid together. If WaitAtMost ends a call, the call returns
// ErrHeld, ErrUnavailable or ErrOutcomeUnknown. At the end no session is left.
func TestAcquire_Storm_OneGuardAndNothingLeft(t *testing.T) {
	for seed := range 3 {
		runInBubble(t, fmt.Sprint(seed), func(t *testing.T, w *world) {
			s := &storm{dice: &dice{r: rand.New(rand.NewPCG(uint64(seed), 0))}, mem: w.Mem}
			var procs []*proc
			for range 3 {
				p := w.start(nil)
				p.Store.Set(s.blow)
				procs = append(procs, p)
			}
			var wg sync.WaitGroup
			end := time.Now().Add(time.Minute)
			for i := range 24 {
				wg.Go(func() {
					for time.Now().Before(end) {
						s.visit(t, procs[i%3])
					}
				})
			}
			wg.Wait()
			s.over.Store(true)
			time.Sleep(3 * pingTime)
			synctest.Wait()
			if l := w.Lock("a"); l.Held || len(l.Waiters) > 0 {
				t.Errorf("held %v, %d waiters are left", l.Held, len(l.Waiters))
			}
			for i, p := range procs {
				if s := p.Stats(); s.Waiting != 0 || s.Held != 0 || s.Unreleased != 0 {
					t.Errorf("process %d: %d wait, %d held, %d unreleased", i, s.Waiting, s.Held, s.Unreleased)
				}
				w.release(p.MustTry("a"))
				w.release(w.wantTurn(p.queue("a", distlock.WaitAtMost(time.Minute))))
				assert.NoErr(t, p.Close(t.Context()), "Close")
			}
		})
	}
}

// A storm disturbs the commands of several processes and counts the holders of the lock.
type storm struct {
	*dice
	mem             *memcatalog.Catalog
	over            atomic.Bool
	writers, shared atomic.Int32
}

func (s *storm) millis(below int) time.Duration {
	return time.Duration(s.n(below)) * time.Millisecond
}

// blow delays a command. At random it also refuses the command, loses its reply, or applies it
// late.
func (s *storm) blow(ctx context.Context, call fault.Call, apply func() error) error {
	if s.over.Load() || call.Op == fault.Ping || call.Op == fault.Notice {
		return apply()
	}
	time.Sleep(s.millis(15))
	switch s.n(40) {
	case 0:
		if !call.Op.Writes() {
			return fault.Refused(call.Op)
		}
		return errors.Join(apply(), fault.Lost(call.Op))
	case 1:
		return fault.Refused(call.Op)
	case 2:
		time.Sleep(s.millis(7000))
	case 3:
		if call.Op == fault.Enter || call.Op == fault.Acquire {
			go func() { // ends with its command
				time.Sleep(s.millis(3000))
				_ = apply()
			}()
			return fault.Lost(call.Op)
		}
	case 4, 5:
		select {
		case <-time.After(s.millis(400)):
		case <-ctx.Done():
			return ctx.Err() // like a driver that has not sent the command yet
		}
	}
	err := apply()
	time.Sleep(s.millis(15))
	return err
}

// visit makes one acquisition with random options. If the acquisition succeeds, visit checks that
// no conflicting guard is valid, and releases the lock.
func (s *storm) visit(t *testing.T, p *proc) {
	ctx, cancel := context.WithTimeout(context.Background(), s.millis(400)+time.Millisecond)
	defer cancel()
	opts := []distlock.Option{distlock.Why([]string{"x", "y", "z"}[s.n(3)])}
	inside, others := &s.writers, &s.shared
	if s.n(4) == 0 {
		opts = append(opts, distlock.Shared())
		inside, others = others, inside
	}
	if s.n(5) == 0 {
		opts = append(opts, distlock.Lease(time.Minute))
	}
	acquire, way := p.Lock("a").Lock, s.n(8)
	atMost := distlock.WaitAtMost(s.millis(300))
	switch way {
	case 0, 1:
		acquire = p.Lock("a").TryLock
	case 2, 3:
		ctx, opts = context.Background(), append(opts, atMost)
	case 4:
		acquire = func(ctx context.Context, _ ...distlock.Option) (*distlock.TryGuard, error) {
			return nil, s.mem.WithTransaction(context.WithoutCancel(ctx), func(ctx context.Context) error {
				return p.Lock("a").LockInTransaction(ctx, atMost)
			})
		}
	}
	g, err := acquire(ctx, opts...)
	if err != nil && way >= 2 && way <= 4 {
		checkPromised(t, err)
	}
	if g != nil {
		if n := inside.Add(1); others.Load() != 0 || inside == &s.writers && n != 1 || g.Err() != nil {
			t.Errorf("%d beside %d others: %v", n, others.Load(), g.Err())
		}
		time.Sleep(s.millis(20))
		inside.Add(-1)
		_ = g.Release()
	}
	if s.n(3) == 0 {
		time.Sleep(s.millis(50))
	}
}

func checkPromised(t *testing.T, err error) {
	t.Helper()
	promised := errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrUnavailable) ||
		errors.Is(err, distlock.ErrOutcomeUnknown)
	if text := err.Error(); !promised || strings.Contains(text, "not sent") ||
		strings.Count(text, "distlock:") > 1 {
		t.Errorf("WaitAtMost ended with %v", err)
	}
}

type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(below int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(below)
}
