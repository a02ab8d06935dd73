package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// The commands of the process take a random time, mostly less than d. A quarter of the commands
// ignore the end of their context.
func (p *proc) slow(d time.Duration, chance *rand.Rand) {
	var mu sync.Mutex
	p.store.Set(func(ctx context.Context, _ fault.Call, apply func() error) error {
		mu.Lock()
		there, back := time.Duration(chance.Int64N(int64(d))), time.Duration(chance.Int64N(int64(d)))
		deaf := chance.IntN(4) == 0
		mu.Unlock()
		if deaf {
			if there > d*9/10 {
				there *= 10 // longer than any call waits
			}
			time.Sleep(there)
			defer time.Sleep(back)
			return apply()
		}
		select {
		case <-time.After(there):
		case <-ctx.Done():
			return ctx.Err() // like a driver that has not sent the command yet
		}
		return apply()
	})
}

// At whatever step WaitAtMost ends a call, the call returns ErrHeld, ErrUnavailable or
// ErrOutcomeUnknown.
func TestWaitAtMost_EndsAtAnyInstant_ErrorIsAPromisedOne(t *testing.T) {
	const inTransaction = "in a transaction"
	promised := []error{distlock.ErrHeld, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown}
	for name, opts := range map[string][]distlock.Option{
		"exclusive": nil, "shared": {distlock.Shared()}, "permits": {distlock.Permits(2)},
		"lease": {distlock.Lease(time.Minute)}, inTransaction: nil,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			ends := map[string]int{}
			var procs []*proc
			var mu sync.Mutex
			var wg sync.WaitGroup
			for no := range 3 {
				p := w.start(nil)
				procs = append(procs, p)
				chance := rand.New(rand.NewPCG(uint64(no), 7))
				p.slow(3*time.Millisecond, chance)
				for caller := range 15 {
					chance := rand.New(rand.NewPCG(uint64(no), uint64(caller)))
					wg.Go(func() {
						for range 10 {
							wait := time.Duration(1 + chance.Int64N(int64(60*time.Millisecond)))
							mine := append([]distlock.Option{distlock.WaitAtMost(wait)}, opts...)
							if name == "shared" && caller%2 == 0 {
								mine = mine[:1]
							}
							var g *distlock.TryGuard
							var err error
							if name == inTransaction {
								err = w.mem.WithTransaction(t.Context(), func(ctx context.Context) error {
									return p.Lock("a").LockInTransaction(ctx, mine...)
								})
							} else {
								g, err = p.Lock("a").Lock(context.Background(), mine...)
							}
							if err == nil {
								time.Sleep(time.Duration(chance.Int64N(int64(2 * time.Millisecond))))
								err = g.Release()
								assert.NoErr(t, err, "Release")
								continue
							}
							of := "none of them"
							for _, one := range promised {
								if errors.Is(err, one) {
									of = one.Error()
									break
								}
							}
							mu.Lock()
							ends[of]++
							isFirst := ends[of] == 1
							mu.Unlock()
							if of == "none of them" && isFirst {
								t.Errorf("after %v: %v", wait, err)
							}
							if text := err.Error(); strings.Contains(text, "not sent") ||
								strings.Count(text, "distlock:") > 1 {
								t.Errorf("after %v: %v", wait, err)
							}
						}
					})
				}
			}
			wg.Wait()
			for _, p := range procs {
				p.store.Set(nil)
			}
			time.Sleep(time.Minute) // until the commands that ignore their contexts end
			t.Log(fmt.Sprint(ends))
		})
	}
}

// At whatever step the context of a call ends, the error matches context.DeadlineExceeded and the
// cause of the context.
func TestAcquire_ContextEndsAtAnyStep_ErrorMatchesTheCause(t *testing.T) {
	errWhy := errors.New("why it ended")
	lease := distlock.Lease(time.Minute)
	for _, c := range []struct {
		slow   fault.Op // empty if no step is slow
		before bool     // the context ends before the call
		try    bool
		opts   []distlock.Option
	}{
		{}, {before: true}, {before: true, try: true}, {slow: fault.Look, try: true},
		{slow: fault.Enter}, {slow: fault.Acquire, try: true},
		{slow: fault.Renew, opts: []distlock.Option{lease}},
		{slow: fault.Renew, try: true, opts: []distlock.Option{lease}},
	} {
		runInBubble(t, fmt.Sprintf("%+v", c), func(t *testing.T, w *world) {
			holder, p := w.start(nil), w.start(nil)
			if c.slow == "" || c.slow == fault.Look {
				holder.mustTry("a")
			}
			p.store.Set(fault.On(c.slow, func(apply func() error) error {
				time.Sleep(100 * time.Millisecond)
				return apply()
			}))
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWhy)
			defer cancel()
			if c.before {
				<-ctx.Done()
			}
			call := p.Lock("a").Lock
			if c.try {
				call = p.Lock("a").TryLock
			}
			err := assert.Err(call(ctx, c.opts...))
			wantErr(t, err, context.DeadlineExceeded)
			wantErr(t, err, errWhy)
			time.Sleep(time.Minute) // until the pending commands end
		})
	}
}
