package distlock_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// endsAtTheAnswer is a context that ends while its caller is given a session: after serve has
// called Err, and before the caller reads the session.
type endsAtTheAnswer struct {
	context.Context
	armed  atomic.Bool
	done   chan struct{}
	asked  atomic.Int32
	onLast func()
}

func (c *endsAtTheAnswer) Done() <-chan struct{}       { return c.done }
func (c *endsAtTheAnswer) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *endsAtTheAnswer) Value(any) any               { return nil }

func (c *endsAtTheAnswer) Err() error {
	if !c.armed.Load() {
		return nil
	}
	switch c.asked.Add(1) {
	case 1: // the call by serve
		close(c.done)
		return nil
	case 2: // the call by context.Cause in the caller
	case 3: // the call by receive, before it passes the session on
		c.onLast()
	}
	return context.Canceled
}

// A finished agent does not remove its successor for the same lock. A session whose caller has left
// passes to a call of the successor.
func TestAdversary_PassOnOfAnEndedAgent_LeavesTheNextAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, other, p := w.start(nil), w.start(nil), w.start(nil)
		for round := range 40 { // repeated, because the caller's select chooses at random
			name := fmt.Sprint(round)
			g := holder.mustTry(name)
			var waiting, behind <-chan turn
			ctx := &endsAtTheAnswer{Context: t.Context(), done: make(chan struct{})}
			ctx.onLast = func() {
				wait := func(p *proc) <-chan turn {
					done := make(chan turn, 1)
					go func() {
						g, err := p.Lock(name).Lock(context.Background())
						done <- turn{guard: g, err: err}
					}()
					time.Sleep(time.Second)
					return done
				}
				behind = wait(other) // queued first, so that the next call has to wait
				waiting = wait(p)
			}
			first := make(chan turn, 1)
			go func() {
				g, err := p.Lock(name).Lock(ctx)
				first <- turn{guard: g, err: err}
			}()
			synctest.Wait()
			ctx.armed.Store(true)
			_ = g.Release()
			got := <-first
			synctest.Wait()
			if got.guard != nil {
				_ = got.guard.Release()
				continue
			}
			if waiting == nil {
				continue
			}
			time.Sleep(time.Second)
			more := []<-chan turn{p.queue(name), p.queue(name), p.queue(name)}
			own := 0
			for _, one := range w.lock(name).Waiters {
				if one.Process == p.Process() {
					own++
				}
			}
			if n := p.Stats().Waiting; n != 3 || own > 2 {
				t.Errorf("round %d: %d calls wait by Stats, want 3; %d entries of the process, want 2 at most",
					round, n, own)
			}
			w.release(w.wantTurn(waiting)) // the first caller's session was passed on to this call
			w.release(w.wantTurn(behind))
			for _, one := range more {
				go func() { _ = (<-one).guard.Release() }()
			}
			synctest.Wait()
			time.Sleep(time.Minute)
			return
		}
		t.Skip("chance never chose the context")
	})
}

// A logger's panic reaches only the caller of TryLock or Lock. The panic does not end the program.
func TestAdversary_LoggerPanics_ProgramGoesOn(t *testing.T) {
	const env = "MONGODLM_ADVERSARY_PANIC"
	if how := os.Getenv(env); how != "" {
		inBubbleAlone(t, func(t *testing.T, w *world) {
			dead := w.start(nil)
			dead.mustTry("a")
			var panics atomic.Bool
			p := w.start(func(c *distlock.Config) {
				c.Logger = zerolog.New(advWriter(func(b []byte) (int, error) {
					if panics.Load() && strings.Contains(string(b), "condemned") {
						panic("the logger panics")
					}
					return len(b), nil
				}))
			})
			dead.kill()
			_, _ = p.try("a")
			time.Sleep(takeoverTime + time.Minute)
			_, _ = p.try("b")
			panics.Store(true)
			func() {
				defer func() { fmt.Println("reached the caller:", recover()) }()
				if how == "store" {
					p.store.Set(fault.On(fault.Acquire, func(func() error) error { panic("the store panics") }))
					_, _ = p.try("c")
					return
				}
				_, _ = p.try("a")
			}()
			p.store.Set(nil)
			panics.Store(false)
			fmt.Println("the program goes on")
		})
		return
	}
	for _, how := range []string{"logger", "store"} {
		cmd := exec.Command(os.Args[0], "-test.run=TestAdversary_LoggerPanics_ProgramGoesOn$")
		cmd.Env = append(os.Environ(), env+"="+how)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "the program goes on") {
			t.Errorf("%s: the program ended: %v\n%.600s", how, err, out)
		}
	}
}

type advWriter func([]byte) (int, error)

func (f advWriter) Write(b []byte) (int, error) { return f(b) }

var _ io.Writer = advWriter(nil)

// There is at most one guard at a time, and no session is left. The test combines impatient and
// patient callers, TryLock, cancelled contexts, lost replies, late copies and slow servers in three
// processes.
func TestAdversary_Storm_OneGuardAndNothingLeft(t *testing.T) {
	for seed := range 5 {
		runInBubble(t, fmt.Sprint(seed), func(t *testing.T, w *world) {
			r := newDice(uint64(seed))
			var procs []*proc
			for range 3 {
				procs = append(procs, w.start(nil))
			}
			fair := atomic.Bool{}
			for _, p := range procs {
				p.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
					if fair.Load() || call.Op == fault.Ping || call.Op == fault.Notice {
						return apply()
					}
					time.Sleep(time.Duration(r.n(15)) * time.Millisecond)
					switch r.n(40) {
					case 0:
						err := apply()
						if err == nil {
							return fault.Lost(call.Op)
						}
						return err
					case 1:
						return fault.Refused(call.Op)
					case 2:
						time.Sleep(time.Duration(r.n(7000)) * time.Millisecond)
					case 3:
						if call.Op == fault.Enter || call.Op == fault.Acquire {
							go func() {
								time.Sleep(time.Duration(r.n(3000)) * time.Millisecond)
								_ = apply()
							}()
							return fault.Lost(call.Op)
						}
					}
					err := apply()
					time.Sleep(time.Duration(r.n(15)) * time.Millisecond)
					return err
				})
			}
			var inside, guards, readers atomic.Int32
			var wg sync.WaitGroup
			end := time.Now().Add(time.Minute)
			for i := range 24 {
				p := procs[i%3]
				wg.Go(func() {
					for time.Now().Before(end) {
						ctx, cancel := context.WithTimeout(context.Background(),
							time.Duration(1+r.n(400))*time.Millisecond)
						opts := []distlock.Option{distlock.Why([]string{"x", "y", "z"}[r.n(3)])}
						shared := r.n(4) == 0
						if shared {
							opts = append(opts, distlock.Shared())
						}
						if r.n(5) == 0 {
							opts = append(opts, distlock.Lease(time.Minute))
						}
						var g *distlock.TryGuard
						var err error
						switch r.n(4) {
						case 0:
							g, err = p.Lock("a").TryLock(ctx, opts...)
						case 1:
							g, err = p.Lock("a").Lock(context.Background(),
								append(opts, distlock.WaitAtMost(time.Duration(r.n(300))*time.Millisecond))...)
						default:
							g, err = p.Lock("a").Lock(ctx, opts...)
						}
						if err == nil {
							guards.Add(1)
							if g.Err() != nil {
								t.Errorf("a guard that is over: %v", g.Err())
							}
							if shared {
								readers.Add(1)
								if n := inside.Load(); n != 0 {
									t.Errorf("%d writers beside a reader", n)
								}
							} else if n := inside.Add(1); n != 1 || readers.Load() != 0 {
								t.Errorf("%d guards at a time, %d readers", n, readers.Load())
							}
							time.Sleep(time.Duration(r.n(20)) * time.Millisecond)
							if shared {
								readers.Add(-1)
							} else {
								inside.Add(-1)
							}
							_ = g.Release()
						} else if g != nil {
							t.Errorf("guard and error %v", err)
						}
						cancel()
						if r.n(3) == 0 {
							time.Sleep(time.Duration(r.n(50)) * time.Millisecond)
						}
					}
				})
			}
			wg.Wait()
			fair.Store(true)
			time.Sleep(3 * pingTime)
			synctest.Wait()
			if l := w.lock("a"); l.Held || len(l.Waiters) > 0 {
				t.Errorf("held %v, %d waiters are left", l.Held, len(l.Waiters))
			}
			for i, p := range procs {
				if s := p.Stats(); s.Waiting != 0 || s.Held != 0 || s.Unreleased != 0 {
					t.Errorf("process %d: %d wait, %d held, %d unreleased", i, s.Waiting, s.Held, s.Unreleased)
				}
				began := time.Now()
				g, err := p.Lock("a").TryLock(t.Context())
				if assert.NoErr(t, err, "TryLock"); err == nil {
					w.release(g)
				}
				if time.Since(began) > time.Second {
					t.Errorf("TryLock took %v", time.Since(began))
				}
				g, err = p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(time.Minute))
				if assert.NoErr(t, err, "Lock"); err == nil {
					w.release(g)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				assert.NoErr(t, p.Close(ctx), "Close")
				cancel()
			}
			t.Logf("%d guards", guards.Load())
		})
	}
}

type dice struct {
	mu sync.Mutex
	s  uint64
}

func newDice(seed uint64) *dice { return &dice{s: seed*0x9E3779B97F4A7C15 + 1} }

func (d *dice) n(below int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.s ^= d.s << 13
	d.s ^= d.s >> 7
	d.s ^= d.s << 17
	return int(d.s>>33) % below
}
