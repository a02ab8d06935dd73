package election_test

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// If the leader's function returns early, the next candidate leads immediately. The old leader
// queues again after a pause, behind the other candidates.
func TestRun_FunctionReturnsEarly_NextLeads_NoSpinning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.stand(w.Start(nil))
		first := a.wantLeader()
		b := w.stand(w.Start(nil))
		begun := time.Now()
		first.finish <- nil
		second := b.wantLeader()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the next leads after %v", took)
		}
		if second.leader.Fence() <= first.leader.Fence() {
			t.Errorf("fence %d after %d", second.leader.Fence(), first.leader.Fence())
		}
		second.obey()
		a.wantNone()
		_ = b.quit()
		a.wantLeader().finish <- nil
		n := a.p.Store.Total()
		for range 10 { // the only candidate leads again after a pause
			begun = time.Now()
			l := a.wantLeader()
			if pause := time.Since(begun); pause < 800*time.Millisecond || pause > 2*time.Second {
				t.Errorf("queues again after %v", pause)
			}
			l.finish <- nil
		}
		if n = a.p.Store.Total() - n; n > 40 {
			t.Errorf("%d commands for ten terms", n)
		}
	})
}

// A leader keeps the lock while its function runs, even after a resignation or the end of its
// context. See Kubernetes pull requests 127675 and 139991.
func TestRun_FunctionIgnoresItsContext_KeepsLeadershipUntilItReturns(t *testing.T) {
	for way, end := range map[string]func(r *run){
		"resign":  func(r *run) { go r.e.Resign(context.Background()) },
		"context": func(r *run) { r.cancel() },
	} {
		inBubbleSub(t, way, func(t *testing.T, w *world) {
			var log assert.Log
			a := w.stand(w.Start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) }))
			l := a.wantLeader()
			b := w.stand(w.Start(nil))
			end(a)
			if !closed(l.ctx.Done()) {
				t.Fatal("the context has not ended")
			}
			time.Sleep(10 * takeoverTime)
			b.wantNone()
			if s := b.p.Stats(); s.OldestWait != 0 || s.Waiting != 1 {
				t.Errorf("a candidate counts as a call that has waited for %v", s.OldestWait)
			}
			if l.leader.Err() != nil || w.lock().TS != l.leader.Session() {
				t.Errorf("it does not lead any more: %v", l.leader.Err())
			}
			assert.Equal(t, strings.Count(log.String(), "ignores the end of its context"), 1,
				"logged %d times, want %d")
			l.finish <- nil
			b.wantLeader().obey()
		})
	}
}

// Resign and Handover of a candidate that does not lead return ErrNotLeader, and do not disturb the
// leader (client-go issue 1187).
func TestResign_NeverLed_NothingIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader().obey()
		wantErr(t, b.e.Resign(t.Context()), election.ErrNotLeader)
		wantErr(t, b.e.Handover(t.Context(), a.p.Process()), election.ErrNotLeader)
		wantErr(t, election.New(b.p.Manager, name).Resign(t.Context()), election.ErrNotLeader)
		wantErr(t, b.quit(), nil)
		b.wantNone()
		if l.ctx.Err() != nil || l.leader.Err() != nil || b.led.Load() || len(w.lock().Waiters) != 0 {
			t.Errorf("the leader was disturbed: %v, %v", l.ctx.Err(), w.lock())
		}
		_ = a.quit()
		wantErr(t, a.e.Resign(t.Context()), election.ErrNotLeader)
	})
}

// A leader that is cut off detects the loss before another candidate leads. It queues again only
// after its function has returned.
func TestRun_PausedPastTheDeadline_LostBeforeAnotherLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		old := a.wantLeader()
		w.kill(a.p)
		next := b.wantLeader().obey()
		wantErr(t, old.leader.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(old.ctx), distlock.ErrLockLost)
		a.p.Heal()
		time.Sleep(takeoverTime)
		a.wantNone() // it is not a candidate while its function runs
		assert.Equal(t, len(w.lock().Waiters), 0,
			"%d wait while the function of a lost term runs, want %d")
		wantErr(t, a.e.Resign(ended()), context.Canceled) // Resign waits for the function of a lost term
		old.finish <- errors.New("late")
		time.Sleep(time.Minute)
		if len(w.lock().Waiters) != 1 || next.leader.Err() != nil {
			t.Errorf("it does not queue again: %+v", w.lock())
		}
		_ = b.quit()
		if again := a.wantLeader().obey(); again.leader.Fence() <= next.leader.Fence() {
			t.Errorf("fence %d after %d", again.leader.Fence(), next.leader.Fence())
		}
	})
}

// ended returns a context that ends after a second.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Second, cancel)
	return ctx
}

// If the lock is lost before the term begins, Run does not call the given function.
func TestRun_LostBeforeItBegan_FunctionIsNotCalled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader()
		b.p.Store.Set(fault.Refusing(fault.Ping))
		time.Sleep(takeoverTime - margin + time.Second) // b's deadline has passed, but b still waits
		l.finish <- nil
		b.wantNone()
		time.Sleep(time.Minute)
		b.wantNone()
		b.p.Heal()
		_ = b.quit()
		a.wantLeader().obey()
	})
}

// If the context of Run ends, the candidate leaves the queue, or resigns if it leads. Run does not
// report the end of the context as an error.
func TestRun_ContextEnds_DuringCampaignAndTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader()
		if len(w.lock().Waiters) != 1 {
			t.Fatalf("%+v", w.lock())
		}
		wantErr(t, b.quit(), nil)
		if len(w.lock().Waiters) != 0 || b.led.Load() {
			t.Errorf("%+v, it has led: %t", w.lock(), b.led.Load())
		}
		l.obey()
		wantErr(t, a.quit(), nil)
		if w.lock().Held {
			t.Error("leadership was not given up")
		}
		c := w.stand(w.Start(nil))
		c.wantLeader().obey()
		c.p.Store.Set(fault.Refusing(fault.Release))
		wantErr(t, c.quit(), distlock.ErrReleaseFailed)
		c.p.Heal()
	})
}

// If the context of Run ends at the instant of the grant, Run does not call the given function, and
// the lock is free afterwards.
func TestRun_ContextEndsWhenElected_FunctionIsNotCalled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.stand(w.Start(nil))
		var elected func() // called when the lock is acquired
		p := w.Start(func(c *distlock.Config) { c.Logger = zerolog.New(calling(func() { elected() })) })
		l := a.wantLeader()
		for _, op := range []fault.Op{fault.Notice, fault.Enter, ""} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			elected = func() {
				if op == "" {
					cancel()
				}
			}
			p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				err := apply()
				if call.Op == op && err == nil {
					cancel()
				}
				return err
			})
			done := make(chan error, 1)
			go func() {
				done <- election.Run(ctx, p.Manager, name, func(context.Context, *election.Leadership) error {
					t.Errorf("called, after %s", op)
					return nil
				})
			}()
			synctest.Wait()
			if op == fault.Notice {
				l.finish <- nil // the context ends when p reads the grant
				a.end()
				time.Sleep(time.Minute)
			}
			wantErr(t, <-done, nil)
			p.Heal()
			time.Sleep(2 * pingTime)
			if w.lock().Held || len(w.lock().Waiters) > 0 {
				t.Errorf("after %s: %+v", op, w.lock())
			}
			cancel()
		}
	})
}

type calling func()

func (f calling) Write(b []byte) (int, error) {
	if strings.Contains(string(b), `"acquired"`) {
		f()
	}
	return len(b), nil
}

// If the function given to Run panics, the term ends with an error. Consecutive panics double the
// pause. A function that calls runtime.Goexit also gives up leadership.
func TestRun_FunctionPanics_TermFails_BacksOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.Start(nil)
		calls, last := 0, time.Now()
		var pauses []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		err := lead(ctx, p, func() error {
			pauses, last = append(pauses, time.Since(last)), time.Now()
			if calls++; calls == 6 {
				cancel()
				return nil
			}
			panic("boom")
		}, election.Backoff(10*time.Second, time.Minute))
		wantErr(t, err, nil)
		for i, want := range []time.Duration{0, 10, 20, 40, 60, 60} {
			want *= time.Second
			if got := pauses[i]; got < want*8/10 || got > want*12/10+time.Second {
				t.Errorf("pause %d is %v, want %v", i, got, want)
			}
		}
		// The Error method of the first value panics. The Unwrap method of the second value panics.
		for _, odd := range []error{(*os.PathError)(nil), (*net.OpError)(nil)} {
			err = lead(t.Context(), p, func() error { return odd }, election.Once())
			wantErr(t, err, election.ErrPanic)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = lead(t.Context(), p, func() error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		if w.lock().Held {
			t.Error("a function that ended its goroutine leads on")
		}
	})
}

// With Once, Run returns after one term, with the error of that term.
func TestRun_Once_ReturnsTheError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, failure := w.Start(nil), errors.New("failed")
		for _, want := range []error{nil, failure} {
			fn := func(_ context.Context, l *election.Leadership) error {
				if err := l.Release(); err != nil { // does not end the term
					t.Error(err)
				}
				if !w.lock().Held {
					t.Error("the function's own release ended the term")
				}
				return want
			}
			err := election.Run(t.Context(), p.Manager, name, fn, election.Once())
			if !errors.Is(err, want) || w.lock().Held {
				t.Errorf("%v, want %v; %+v", err, want, w.lock())
			}
		}
		r := w.stand(p, election.Once())
		r.wantLeader().obey()
		assert.NoErr(t, r.e.Resign(t.Context()))
		<-r.over
		if r.err != nil {
			t.Errorf("after a resignation: %v", r.err)
		}
		r = w.stand(p, election.Once())
		l := r.wantLeader()
		w.kill(p)
		<-l.ctx.Done()
		p.Heal()
		l.finish <- nil
		<-r.over
		wantErr(t, r.err, distlock.ErrLockLost)
	})
}

// If the leader's function calls Resign with its own context, Resign does not wait for the
// function.
func TestResign_InsideTheFunction_DoesNotHang(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := election.New(w.Start(nil).Manager, name)
		err := e.Run(t.Context(), func(ctx context.Context, _ *election.Leadership) error {
			wantErr(t, e.Resign(ctx), election.ErrResigned)
			return ctx.Err()
		}, election.Once())
		assert.NoErr(t, err)
	})
}

// Bad arguments are refused before any I/O.
func TestElection_BadArguments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.Start(nil)
		n := p.Store.Total()
		fn := func(context.Context, *election.Leadership) error { return nil }
		bad := distlock.ErrBadOption
		run := func(opts ...election.Option) error {
			return election.Run(t.Context(), p.Manager, name, fn, opts...)
		}
		var noContext context.Context
		for _, err := range []error{
			election.Run(t.Context(), nil, name, fn), election.Run(t.Context(), p.Manager, name, nil),
			election.Run(noContext, p.Manager, name, fn), run(nil), run(election.OnNewLeader(nil)),
			run(election.Backoff(0, 1)), run(election.Backoff(2, 1)),
			run(election.Backoff(math.MaxInt64, math.MaxInt64)), // a pause would overflow
			run(election.Lease(0)), run(election.Lease(-time.Second)),
			run(election.Lease(time.Microsecond)), run(election.Lease(200 * time.Hour)),
		} {
			wantErr(t, err, bad)
		}
		wantErr(t, election.Run(t.Context(), p.Manager, "", fn), distlock.ErrBadName)
		var none *election.Election
		wantErr(t, none.Resign(t.Context()), bad)
		wantErr(t, assert.Err(none.Leader(t.Context())), bad)
		wantErr(t, assert.Err(none.Candidates(t.Context())), bad)
		for _, err := range none.Observe(t.Context()) {
			wantErr(t, err, bad)
		}
		wantErr(t, none.RequestYield(t.Context(), "x"), bad)
		wantErr(t, none.Handover(t.Context(), "x"), bad)
		wantErr(t, election.New(p.Manager, name).RequestYield(t.Context(), "\x00"), bad)
		if p.Store.Total() != n {
			t.Errorf("%d commands", p.Store.Total()-n)
		}
		wantErr(t, run(election.Metadata("\x00")), bad)
		r := w.stand(p)
		l := r.wantLeader().obey()
		wantErr(t, l.leader.Renew(t.Context()), bad) // a leader without a lease
		wantErr(t, r.e.Run(t.Context(), fn), election.ErrRunning)
		_ = r.quit()
		m, err := distlock.New(t.Context(),
			distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
		assert.Must(t, err)
		_ = m.Close(t.Context())
		wantErr(t, election.Run(t.Context(), m, name, fn), distlock.ErrClosed)
		wantErr(t, election.New(m, name).RequestYield(t.Context(), "x"), distlock.ErrClosed)
		for _, err := range election.New(m, name).Observe(t.Context()) {
			wantErr(t, err, distlock.ErrClosed)
		}
		for _, err := range election.New(p.Manager, "").Observe(t.Context()) {
			wantErr(t, err, distlock.ErrBadName)
		}
	})
}
