package singleton_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// One of five processes runs the loop every interval, and sends three commands for a round.
func TestRun_FiveProcesses_OneRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var begun []time.Time
		on := map[string]bool{}
		var ps []*process
		for range 5 {
			p := w.start(0)
			p.loop(looping(time.Minute, func(_ context.Context, g *distlock.TryGuard) error {
				mu.Lock()
				defer mu.Unlock()
				begun, on[g.Process()] = append(begun, time.Now()), true
				return nil
			}))
			ps = append(ps, p)
		}
		time.Sleep(time.Minute + time.Second)
		before := 0
		for _, p := range ps {
			before += p.store.count()
		}
		time.Sleep(time.Hour)
		commands := -before
		for _, p := range ps {
			commands += p.store.count()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(begun) != 62 || len(on) != 1 || commands != 60*3 {
			t.Errorf("%d rounds on %d processes with %d commands, want 62, 1, 180", len(begun), len(on),
				commands)
		}
		for _, p := range ps { // a process that waits for its turn is not a blocked waiter
			if s := p.Stats(); s.OldestWait != 0 {
				t.Errorf("a follower has waited for %v", s.OldestWait)
			}
		}
		s := w.status()
		if s.State != singleton.Done || s.Rounds != 62 || s.LastError != "" || !on[s.Process] ||
			!s.Next.Equal(s.Begun.Add(time.Minute)) {
			t.Errorf("status %+v", s)
		}
	})
}

// If Turn is 2, the processes take turns after two rounds, and a round still begins every interval.
func TestRun_Turn_ProcessesTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var on []string
		var begun []time.Time
		for range 3 {
			w.start(0).loop(singleton.Loop{Name: "a", Every: time.Minute, Turn: 2, Why: "doing a round",
				Do: func(_ context.Context, g *distlock.TryGuard) error {
					mu.Lock()
					defer mu.Unlock()
					on, begun = append(on, g.Process()), append(begun, time.Now())
					return nil
				}})
		}
		time.Sleep(12 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(on) < 12 {
			t.Fatalf("%d rounds in 12 minutes", len(on))
		}
		for i := range 12 {
			if i%2 == 1 && on[i] != on[i-1] || i%6 == 2 && on[i] == on[i-1] || i >= 6 && on[i] != on[i-6] {
				t.Errorf("round %d is on the wrong process: %q", i, on)
			}
			if i > 0 && begun[i].Sub(begun[i-1]).Round(time.Second) != time.Minute {
				t.Errorf("round %d began %v after the one before", i, begun[i].Sub(begun[i-1]))
			}
		}
	})
}

// No round begins if the lock is lost while the settings are read.
func TestRun_LostBeforeTheRound_NoRoundBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(0)
		p.store.set(func(_ context.Context, apply func() error) error {
			err := apply()
			if p.store.count() == 3 { // after the two commands of a new holder
				p.locks.Set(refused)
				time.Sleep(takeoverTime)
			}
			return err
		})
		p.loop(looping(time.Minute, func(_ context.Context, g *distlock.TryGuard) error {
			t.Error("a round began: ", g.Err())
			return nil
		}))
		time.Sleep(takeoverTime + time.Minute)
		if n := p.store.count(); n < 3 {
			t.Errorf("%d commands to the store, want the settings read", n)
		}
		if s := w.status(); s.State == singleton.Running {
			t.Error("a round is told as begun")
		}
	})
}

// A failed round doubles the pause, up to BackOff, and a success resets the pause. A panic is a
// failure.
func TestRun_Failures_BackOffAndReset(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		fail := []any{"", "boom", "boom", errors.New("panic"), "boom", "", ""}
		var after []time.Duration
		var said []string
		p := w.start(0)
		p.loop(singleton.Loop{Name: "a", Every: time.Minute, BackOff: 5 * time.Minute,
			Do: func(context.Context, *distlock.TryGuard) error {
				n := len(after)
				after = append(after, time.Since(w.started))
				said = append(said, w.status().LastError)
				switch why := fail[min(n, len(fail)-1)].(type) {
				case error:
					panic(why)
				case string:
					if why != "" {
						return errors.New(why)
					}
				}
				return nil
			}})
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		m := time.Minute
		want := []time.Duration{0, m, 2 * m, 4 * m, 8 * m, 13 * m, 14 * m}
		for i := range want {
			if after[i] != want[i] {
				t.Errorf("rounds at %v, want %v", after[:len(want)], want)
				break
			}
		}
		if said[2] != "boom" || !strings.Contains(said[4], "panic: panic") || said[6] != "" {
			t.Errorf("errors %q", said)
		}
	})
}

// When its context ends, Run waits for the current round, even after Drain has passed. No other
// process begins a round before the current round ends.
func TestRun_Shutdown_Drains(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(0), w.start(0)
		var cause error
		var over, next time.Time
		a.loop(singleton.Loop{Name: "a", Every: time.Minute, Drain: 10 * time.Second,
			Do: func(ctx context.Context, g *distlock.TryGuard) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				time.Sleep(time.Hour) // ignores its context
				over = time.Now()
				return nil
			}})
		time.Sleep(time.Second)
		b.loop(looping(time.Minute, func(context.Context, *distlock.TryGuard) error {
			if next.IsZero() {
				next = time.Now()
			}
			return nil
		}))
		a.stop()
		a.ended.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantErr(t, cause, singleton.ErrShutdown)
		if d := over.Sub(w.started); d != time.Hour+11*time.Second || next.Before(over) {
			t.Errorf("the round ended after %v, the next began %v after it", d, next.Sub(over))
		}
	})
}

// If the holder is cut off, the context of its round ends before the next holder's round begins.
// Late writes of the old holder are refused.
func TestRun_HolderCutOff_RoundEndsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(0), w.start(0)
		var lost time.Time
		a.loop(looping(time.Minute, func(ctx context.Context, _ *distlock.TryGuard) error {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), distlock.ErrLockLost)
			lost = time.Now()
			return errors.New("from the old holder")
		}))
		time.Sleep(time.Second)
		var first time.Time
		b.loop(looping(time.Minute, func(context.Context, *distlock.TryGuard) error {
			if first.IsZero() {
				first = time.Now()
			}
			return nil
		}))
		a.cut(func() time.Duration { return 20 * time.Minute }) // by then the next process holds the lock
		time.Sleep(2 * takeoverTime)
		a.heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if lost.IsZero() || !first.After(lost) {
			t.Errorf("lost at %v, first round of the next %v", lost, first)
		}
		if s := w.status(); s.LastError != "" || s.Process != b.Process() || s.State != singleton.Done {
			t.Errorf("status %+v", s)
		}
	})
}

// Restarts do not make rounds more frequent.
func TestRun_Restart_KeepsTheInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rounds := 0
		for range 29 { // one restart a minute
			p := w.start(0)
			p.loop(looping(10*time.Minute, func(context.Context, *distlock.TryGuard) error {
				rounds++
				return nil
			}))
			time.Sleep(time.Minute)
			p.stop()
			p.ended.Wait()
		}
		assert.Equal(t, rounds, 3, "%d rounds in half an hour, want %d")
	})
}

// No round begins while the settings stop the loop, do not permit the time of day, or are
// malformed.
func TestRun_Settings_StopRounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // the test begins at midnight
		var r rounds
		p := w.start(5 * time.Hour) // the clock of the process does not matter
		p.loop(looping(time.Minute, r.note))
		ran := func(for_ time.Duration) int {
			before := len(r.all())
			time.Sleep(for_)
			synctest.Wait()
			return len(r.all()) - before
		}
		want := func(what string, got, want int) {
			t.Helper()
			if got < want || got > want+1 {
				t.Errorf("%s: %d rounds, want %d", what, got, want)
			}
		}
		window := func(start, stop string) bson.E {
			return e("activeWindow", bson.D{e("start", start), e("stop", stop)})
		}
		time.Sleep(time.Second)
		want("no settings", ran(10*time.Minute), 10)
		w.settings("a", e("stopped", true))
		if n := ran(10 * time.Minute); n != 0 || !w.status().Settings.Stopped {
			t.Errorf("%d rounds while stopped, status %+v", n, w.status())
		}
		w.settings("a", e("stopped", "yes"))
		assert.Equal(t, ran(10*time.Minute), 0, "%d rounds with bad settings, want %d")
		if s := w.status(); !strings.Contains(s.LastError, `"stopped"`) || s.SettingsErr == nil {
			t.Errorf("status %+v", s)
		}
		w.settings("a", window("0:30", "0:40")) // includes the present time
		want("in the window", ran(10*time.Minute), 10)
		want("after the window", ran(10*time.Minute), 0)
		w.settings("a", window("23:00", "00:55")) // includes midnight
		want("in the window over midnight", ran(10*time.Minute), 5)
		w.settings("other", e("stopped", true))
		w.settings("a")
		want("no settings", ran(10*time.Minute), 10)
		if s := w.status(); s.LastError != "" {
			t.Errorf("status %+v", s)
		}
	})
}

// Run checks its arguments before any I/O. The error names the wrong argument.
func TestRun_BadArguments_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(0)
		synctest.Wait() // the heartbeat has begun
		before := p.locks.Total()
		const endless = time.Duration(1<<63 - 1)
		do := nothing
		good := func(change func(*singleton.Loop)) singleton.Loop {
			l := singleton.Loop{Name: "a", Store: p.store, Every: time.Second, Do: do}
			change(&l)
			return l
		}
		for field, l := range map[string]singleton.Loop{
			"Name":    good(func(l *singleton.Loop) { l.Name = "" }),
			"Store":   good(func(l *singleton.Loop) { l.Store = nil }),
			"Every":   good(func(l *singleton.Loop) { l.Every = 0 }),
			"Jitter":  good(func(l *singleton.Loop) { l.Jitter = -1 }),
			"Do":      good(func(l *singleton.Loop) { l.Do = nil }),
			"BackOff": good(func(l *singleton.Loop) { l.BackOff = time.Millisecond }),
			"Drain":   good(func(l *singleton.Loop) { l.Drain = -1 }),
			// The sums of these durations overflow.
			"Every is":   good(func(l *singleton.Loop) { l.Every = endless / 5 }),
			", Jitter 2": good(func(l *singleton.Loop) { l.Jitter = endless }),
			"BackOff 2":  good(func(l *singleton.Loop) { l.BackOff = endless }),
		} {
			err := singleton.Run(t.Context(), p.Manager, l)
			wantErr(t, err, singleton.ErrBadArgument)
			if err != nil && !strings.Contains(err.Error(), field) {
				t.Errorf("%v does not name %s", err, field)
			}
		}
		var none context.Context
		l := good(func(*singleton.Loop) {})
		for _, err := range []error{
			singleton.Run(none, p.Manager, l), singleton.Run(t.Context(), nil, l),
			assert.Err(singleton.List(t.Context(), nil)), assert.Err(singleton.NewStore(nil)),
		} {
			wantErr(t, err, singleton.ErrBadArgument)
		}
		if n := p.locks.Total() - before; n != 0 || p.store.count() != 0 {
			t.Errorf("%d and %d commands", n, p.store.count())
		}
	})
}

// Run returns a permanent error, for example for a damaged record or a closed Manager.
func TestRun_Hopeless_Returns(t *testing.T) {
	loop := func(p *process) error { return <-p.runs(singleton.KindLoop, time.Second, nothing) }
	withRecord := func(name string, test func(t *testing.T, w *world, err error), fields ...bson.E) {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			doc := append(bson.D{e("_id", "a")}, fields...)
			assert.Must(t, w.store.Put(singleton.RecordsCollection, doc))
			test(t, w, loop(w.start(0)))
		})
	}
	withRecord("damaged", func(t *testing.T, w *world, err error) {
		var malformed *singleton.MalformedError
		if !errors.As(err, &malformed) || malformed.Field != "begun" {
			t.Errorf("Run: %v", err)
		}
		list, err := singleton.List(t.Context(), w.store)
		if err != nil || list[0].Err == nil || list[0].Name != "a" {
			t.Errorf("List: %+v, %v", list, err)
		}
	}, e("fence", int64(0)), e("kind", "loop"), e("begun", "then"))
	withRecord("of a schedule", func(t *testing.T, _ *world, err error) {
		if err == nil || !strings.Contains(err.Error(), "choose another name") {
			t.Errorf("Run: %v", err)
		}
	}, e("fence", int64(0)), e("kind", "slots"))
	withRecord("newer than the lock", func(t *testing.T, _ *world, err error) {
		wantErr(t, err, singleton.ErrStale)
	}, e("fence", int64(1)<<61), e("kind", "loop"))
	inBubbleSub(t, "closed", func(t *testing.T, w *world) {
		p := w.start(0)
		time.AfterFunc(time.Minute, func() { _ = p.Close(context.Background()) })
		wantErr(t, loop(p), distlock.ErrClosed)
	})
}
