package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/effort"
	"mongodlm/singleton"
)

// histories returns the number of random histories of each kind.
func histories() int {
	if testing.Short() {
		return 3
	}
	return 1 + effort.Share(24)
}

// A fate kills, cuts off and heals the processes of a world at random for some hours. It also
// starts new processes and moves the pause switch. Half of the commands of a process that is cut
// off are applied up to half an hour later.
type fate struct {
	*rand.Rand
	mu sync.Mutex // guards the field Rand
}

func (f *fate) n(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.IntN(n)
}

func (f *fate) play(w *world, run func(p *process)) {
	start := func() *process {
		p := w.start(time.Duration(f.n(121)-60) * time.Minute)
		run(p)
		return p
	}
	ps := []*process{start(), start(), start()}
	for range 20 {
		time.Sleep(time.Duration(f.n(600)) * time.Second)
		i := f.n(len(ps))
		switch what := f.n(8); {
		case what < 3:
			ps[i].cut(func() time.Duration { return time.Duration(f.n(60)-30) * time.Minute })
		case what < 5:
			ps[i].kill()
			ps[i].bury()
			ps[i] = start()
		case what == 5:
			ps[i].heal()
			ps[i].stop()
			ps[i] = start()
		default:
			ps[i].heal()
		}
	}
	for _, p := range ps {
		p.heal()
	}
	time.Sleep(2 * takeoverTime)
}

func forEachSeed(t *testing.T, test func(t *testing.T, w *world, f *fate)) {
	for seed := range histories() {
		inBubbleSub(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, w *world) {
			test(t, w, &fate{Rand: rand.New(rand.NewPCG(uint64(seed), 11))})
		})
	}
}

// Two rounds never run under trusted guards at one time, whatever dies, hangs or comes late, and
// the loop continues. Some rounds ignore the end of their context.
func TestRun_RandomFaults_NeverTwoTrustedRounds(t *testing.T) {
	forEachSeed(t, func(t *testing.T, w *world, f *fate) {
		r := &referee{t: t}
		f.play(w, func(p *process) {
			p.loop(singleton.Loop{Name: "a", Every: 30 * time.Second, Jitter: 10 * time.Second,
				Do: func(ctx context.Context, g *distlock.TryGuard) error {
					r.enter(g)
					defer r.leave(g)
					deaf := f.n(3) == 0
					for range f.n(30) {
						time.Sleep(time.Duration(f.n(5000)) * time.Millisecond)
						if !deaf && ctx.Err() != nil {
							return context.Cause(ctx)
						}
						r.look()
					}
					switch f.n(10) {
					case 0:
						return errors.New("boom")
					case 1:
						panic("bang")
					}
					return nil
				}})
		})
		before := r.count()
		time.Sleep(time.Hour)
		if n := r.count() - before; n == 0 {
			t.Errorf("the loop stands still; status %+v", w.status())
		}
	})
}

// No slot begins twice. Slots begin in their order and never before they are due by the server's
// clock. Fences do not fall. Every slot runs if no process dies.
func TestRunSlots_RandomFaults_EachSlotOnce(t *testing.T) {
	forEachSeed(t, func(t *testing.T, w *world, f *fate) {
		w.randomSlots(t, f, false)
	})
}

// With Rerun a slot begins again only with the next attempt and a later holder. Every slot ends.
func TestRunSlots_RandomFaultsRerun_AttemptsRise(t *testing.T) {
	forEachSeed(t, func(t *testing.T, w *world, f *fate) {
		w.randomSlots(t, f, true)
	})
}

func (w *world) randomSlots(t *testing.T, f *fate, rerun bool) {
	var j journal
	var mu sync.Mutex
	ended := map[int64]bool{} // by Unix time
	const interval = 2 * time.Minute
	f.play(w, func(p *process) {
		p.slots(singleton.Slots{Name: "a", Schedule: singleton.Every(interval), Rerun: rerun,
			Missed: singleton.RunAll, MostMissed: 10_000,
			Do: func(_ context.Context, s singleton.Slot) error {
				j.note(s)
				time.Sleep(time.Duration(f.n(20)) * time.Second)
				mu.Lock()
				defer mu.Unlock()
				ended[s.Time.Unix()] = true
				return nil
			}})
	})
	time.Sleep(time.Hour)
	synctest.Wait()
	s := w.status()
	mu.Lock()
	defer mu.Unlock()
	var last entry
	begun := map[int64]bool{}
	for _, e := range j.all() {
		slot, attempt := e.slot.Time, e.slot.Attempt
		again := rerun && slot.Equal(last.slot.Time) && attempt == last.slot.Attempt+1 &&
			e.fence > last.fence
		next := slot.After(last.slot.Time) && attempt == 1 && e.fence >= last.fence
		if !again && !next || e.at.Before(slot) {
			t.Errorf("slot %v, attempt %d, fence %d at %v after slot %v, attempt %d, fence %d", slot,
				attempt, e.fence, e.at, last.slot.Time, last.slot.Attempt, last.fence)
		}
		last, begun[slot.Unix()] = e, true
	}
	lost := 0
	for slot := w.started.Add(interval); !slot.After(s.Slot); slot = slot.Add(interval) {
		if !begun[slot.Unix()] {
			lost++
		} else if !ended[slot.Unix()] && (slot.Before(s.Slot) || s.State != singleton.Running) {
			t.Errorf("slot %v was begun and did not end here, where nobody dies", slot)
		}
	}
	// A beginning may be applied although its process was cut off and did not run the slot. Without
	// Rerun such a slot is lost, and recorded as interrupted.
	if rerun && lost > 0 || time.Since(s.Slot) > interval+30*time.Second || s.Missed != 0 {
		t.Errorf("%d of %d slots were never begun; status %+v", lost, len(begun)+lost, s)
	}
}
