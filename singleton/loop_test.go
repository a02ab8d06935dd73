package singleton_test

import (
	"context"
	"errors"
	"strings"
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
		var j journal
		var ps []*process
		for range 5 {
			p := w.start(0)
			p.loop(looping(time.Minute, j.round))
			ps = append(ps, p)
		}
		sent := func() (n int) {
			for _, p := range ps {
				n += p.store.Sent()
			}
			return n
		}
		time.Sleep(time.Minute + time.Second)
		before := sent()
		time.Sleep(time.Hour)
		s := w.status()
		if n := sent() - before; n != 60*3 {
			t.Errorf("%d commands for 60 rounds, want 3 each", n)
		}
		for _, round := range j.all() {
			assert.Equal(t, round.process, s.Process, "a round on %s, want %s")
		}
		for _, p := range ps { // a process that waits for its turn is not a blocked waiter
			if s := p.Stats(); s.OldestWait != 0 {
				t.Errorf("a follower has waited for %v", s.OldestWait)
			}
		}
		if len(j.all()) != 62 || s.State != singleton.Done || s.Rounds != 62 || s.LastError != "" ||
			!s.Next.Equal(s.Begun.Add(time.Minute)) {
			t.Errorf("status %+v", s)
		}
	})
}

// If Turn is 2, the processes take turns after two rounds, and a round still begins every interval.
func TestRun_Turn_ProcessesTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		for range 3 {
			w.start(0).loop(singleton.Loop{Name: "a", Every: time.Minute, Turn: 2, Do: j.round})
		}
		time.Sleep(12 * time.Minute)
		all := j.all()
		if len(all) < 12 {
			t.Fatalf("%d rounds in 12 minutes", len(all))
		}
		on := func(i int) string { return all[i].process }
		for i := 1; i < 12; i++ {
			if (on(i) == on(i-1)) != (i%2 == 1) || i >= 6 && on(i) != on(i-6) {
				t.Errorf("round %d is on the wrong process: %+v", i, all)
			}
			if after := all[i].at.Sub(all[i-1].at).Round(time.Second); after != time.Minute {
				t.Errorf("round %d began %v after the one before", i, after)
			}
		}
	})
}

// No round begins if the lock is lost while the settings are read.
func TestRun_LostBeforeTheRound_NoRoundBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(0)
		p.store.Set(func(_ context.Context, _ string, apply func() error) error {
			err := apply()
			if p.store.Sent() == 3 { // after the two commands of a new holder
				p.locks.Kill()
				time.Sleep(takeoverTime)
			}
			return err
		})
		p.loop(looping(time.Minute, func(_ context.Context, g *distlock.TryGuard) error {
			t.Error("a round began: ", g.Err())
			return nil
		}))
		time.Sleep(takeoverTime + time.Minute)
		if n := p.store.Sent(); n < 3 {
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
		var over time.Time
		var next journal
		a.loop(singleton.Loop{Name: "a", Every: time.Minute, Drain: 10 * time.Second,
			Do: func(ctx context.Context, g *distlock.TryGuard) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				time.Sleep(time.Hour) // ignores its context
				over = time.Now()
				return nil
			}})
		time.Sleep(time.Second)
		b.loop(looping(time.Minute, next.round))
		a.stop()
		a.ended.Wait()
		time.Sleep(2 * time.Minute)
		wantErr(t, cause, singleton.ErrShutdown)
		after := next.all()[0].at.Sub(over)
		if d := over.Sub(w.started); d != time.Hour+11*time.Second || after < 0 {
			t.Errorf("the round ended after %v, the next began %v after it", d, after)
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
		var next journal
		b.loop(looping(time.Minute, next.round))
		a.locks.Kill()
		a.store.Set(func(ctx context.Context, _ string, apply func() error) error {
			time.AfterFunc(20*time.Minute, func() { _ = apply() }) // by then b holds the lock
			return silent(ctx, "", apply)
		})
		time.Sleep(2*takeoverTime + time.Minute)
		synctest.Wait()
		if first := next.all()[0].at; lost.IsZero() || !first.After(lost) {
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
		var j journal
		for range 29 { // one restart a minute
			p := w.start(0)
			p.loop(looping(10*time.Minute, j.round))
			time.Sleep(time.Minute)
			p.stop()
			p.ended.Wait()
		}
		assert.Equal(t, len(j.all()), 3, "%d rounds in half an hour, want %d")
	})
}

// No round begins while the settings stop the loop, do not permit the time of day, or are
// malformed.
func TestRun_Settings_StopRounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) { // the test begins at midnight
		var j journal
		p := w.start(5 * time.Hour) // the clock of the process does not matter
		p.loop(looping(time.Minute, j.round))
		ran := func(for_ time.Duration) int {
			before := len(j.all())
			time.Sleep(for_)
			synctest.Wait()
			return len(j.all()) - before
		}
		want := func(what string, got, want int) {
			t.Helper()
			if got < want || got > want+1 {
				t.Errorf("%s: %d rounds, want %d", what, got, want)
			}
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
		w.settings("a", e("activeWindow", bson.D{e("start", "0:30"), e("stop", "0:40")}))
		want("in the window", ran(10*time.Minute), 10)
		want("after the window", ran(20*time.Minute), 0)
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
		before := p.locks.Store.Total()
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
		if n := p.locks.Store.Total() - before; n != 0 || p.store.Sent() != 0 {
			t.Errorf("%d and %d commands", n, p.store.Sent())
		}
	})
}

// Run returns a permanent error, for example for a damaged record or a closed Manager. It does not
// change the record of a schedule, even if a command fails.
func TestRun_Hopeless_Returns(t *testing.T) {
	withRecord := func(name string, test func(t *testing.T, w *world, err error), fields ...bson.E) {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			doc := append(bson.D{e("_id", "a"), e("seen", time.Now())}, fields...)
			assert.Must(t, w.store.Put(singleton.RecordsCollection, doc))
			p := w.start(0)
			p.store.lose(0, 1, false)
			test(t, w, <-p.runs(singleton.KindLoop, time.Second, nothing))
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
	withRecord("of a schedule", func(t *testing.T, w *world, err error) {
		if err == nil || !strings.Contains(err.Error(), "choose another name") ||
			w.status().Kind != singleton.KindSlots {
			t.Errorf("Run: %v, the record is now a %s's", err, w.status().Kind)
		}
	}, e("fence", int64(0)), e("kind", "slots"))
	withRecord("newer than the lock", func(t *testing.T, _ *world, err error) {
		wantErr(t, err, singleton.ErrStale)
	}, e("fence", int64(1)<<61), e("kind", "loop"))
	inBubbleSub(t, "closed", func(t *testing.T, w *world) {
		p := w.start(0)
		time.AfterFunc(time.Minute, func() { _ = p.Close(context.Background()) })
		wantErr(t, <-p.runs(singleton.KindLoop, time.Second, nothing), distlock.ErrClosed)
	})
}
