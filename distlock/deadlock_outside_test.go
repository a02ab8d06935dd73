package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// L15a: tries to break: two who wait outside of full lines, in different processes, wait for each
// other. One of them is told within five seconds, the other goes on.
func TestDeadlock_TwoOutsideOfDifferentProcesses_OneIsTold(t *testing.T) {
	for _, apart := range []time.Duration{
		0, 700 * time.Millisecond, 10 * time.Second, 10 * time.Minute,
	} {
		runInBubble(t, apart.String(), func(t *testing.T, w *world) {
			a, b, l := w.start(nil), w.start(nil), w.start(nil)
			ga, gb := a.mustTry("a"), b.mustTry("b")
			left := []func(){w.fill(l, "a"), w.fill(l, "b")}
			first := a.queueCtx(ga.Context(), "b", distlock.Why("first"))
			time.Sleep(apart)
			second := b.queueCtx(gb.Context(), "a", distlock.Why("second"))
			start := time.Now()
			var told turn
			select {
			case told = <-first:
				first = nil
			case told = <-second:
				second = nil
			case <-time.After(time.Hour):
				t.Fatal("nobody is told")
			}
			d := wantDeadlock(t, told.err)
			if took := time.Since(start); took > toldAtMost {
				t.Errorf("told after %v, want at most %v", took, toldAtMost)
			}
			if text := strings.Join(d.Chain, "\n"); len(d.Chain) != 2 || !strings.Contains(text, "first") ||
				!strings.Contains(text, "second") {
				t.Errorf("the chain is\n%s", text)
			}
			time.Sleep(time.Minute)
			if first != nil {
				w.wantWaiting(first)
				w.release(gb)
			} else {
				w.wantWaiting(second)
				w.release(ga)
			}
			for _, leave := range left {
				leave()
			}
			if first != nil {
				w.release(w.wantTurn(first))
				w.release(ga)
			} else {
				w.release(w.wantTurn(second))
				w.release(gb)
			}
			time.Sleep(3 * time.Second)
			for _, p := range []*proc{a, b} {
				raw := w.mem.Document(catalog.PingsCollection, p.Process())
				if ping, _ := catalog.ParsePing(raw); ping.Note != nil {
					t.Errorf("nobody waits outside, and the ping says %+v", ping.Note)
				}
			}
		})
	}
}

// Tries to break: who waits for a lock of a transaction while it holds another stands in no line,
// and is told all the same when it waits for itself.
func TestDeadlock_ThroughLockInTransaction_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		other := b.queueCtx(gb.Context(), "a", distlock.WaitAtMost(time.Hour))
		time.Sleep(time.Minute)
		tx := w.mem.Begin()
		start := time.Now()
		err := a.Lock("b").LockInTransaction(tx.Context(ga.Context()))
		wantDeadlock(t, err)
		if took := time.Since(start); took > toldAtMost {
			t.Errorf("told after %v, want at most %v", took, toldAtMost)
		}
		tx.Abort()
		w.release(ga)
		w.release(w.wantTurn(other))
		w.release(gb)
	})
}

// transact lets a process wait for a lock of a transaction until that ends, under what ctx says
// that it holds: it stands in no line.
func (p *proc) transact(ctx context.Context, name string) <-chan error {
	done := make(chan error, 1)
	go func() {
		tx := p.w.mem.Begin()
		defer tx.Abort()
		done <- p.Lock(name).LockInTransaction(tx.Context(ctx))
	}()
	return done
}

// Tries to break: two processes wait for each other by transactions alone.
func TestDeadlock_TwoTransactionsOfDifferentProcesses_OneIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		one, two := a.transact(ga.Context(), "b"), b.transact(gb.Context(), "a")
		start := time.Now()
		select {
		case err := <-one:
			wantDeadlock(t, err)
			w.release(ga)
			wantErr(t, <-two, distlock.ErrHeld) // its transaction shows an older picture
			w.release(gb)
		case err := <-two:
			wantDeadlock(t, err)
			w.release(gb)
			wantErr(t, <-one, distlock.ErrHeld)
			w.release(ga)
		case <-time.After(time.Hour):
			t.Fatal("nobody is told")
		}
		if took := time.Since(start); took > toldAtMost+5*time.Second { // the other polls
			t.Errorf("it took %v", took)
		}
	})
}

// Tries to break: however long somebody has waited of whom a note alone tells, or its own process
// alone since it holds what another Manager has acquired: who closes a circle is told in time, or
// it is.
func TestDeadlock_ClosedLater_OneIsToldInTime(t *testing.T) {
	for _, apart := range []time.Duration{
		0, 400 * time.Millisecond, 3 * time.Second, 20 * time.Second, 40 * time.Second, 10 * time.Minute,
	} {
		for _, abroad := range []bool{false, true} {
			title := fmt.Sprintf("%v, by another Manager %v", apart, abroad)
			runInBubble(t, title, func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(nil)
				ga, gb := a.mustTry("a"), b.mustTry("b")
				ctx, leave := context.WithCancel(context.Background())
				var outside <-chan error
				var inside <-chan turn
				if abroad {
					inside = w.start(nil).queueCtx(ctx, "b", distlock.Holding(ga))
				} else {
					held, end := context.WithCancel(ga.Context())
					context.AfterFunc(ctx, end)
					outside = a.transact(held, "b")
				}
				time.Sleep(apart)
				last := b.queueCtx(ctx, "a", distlock.Holding(gb))
				start := time.Now()
				select {
				case err := <-outside:
					wantDeadlock(t, err)
					outside = nil
				case got := <-inside:
					wantDeadlock(t, got.err)
					inside = nil
				case got := <-last:
					wantDeadlock(t, got.err)
					last = nil
				}
				if took := time.Since(start); took > toldAtMost {
					t.Errorf("told after %v, want at most %v", took, toldAtMost)
				}
				time.Sleep(time.Minute)
				leave()
				for _, other := range []<-chan turn{inside, last} {
					if other != nil {
						wantErr(t, (<-other).err, context.Canceled)
					}
				}
				if outside != nil {
					wantErr(t, <-outside, context.Canceled)
				}
				w.release(ga)
				w.release(gb)
			})
		}
	}
}

// Tries to break: a circle of many is found, of whom all or every second wait for a lock of a
// transaction: no line shows them.
func TestDeadlock_LongCircleOfTransactions_OneIsTold(t *testing.T) {
	const many = 12
	for every := range 3 {
		runInBubble(t, fmt.Sprintf("%d of 3 in line", every), func(t *testing.T, w *world) {
			ctx, leave := context.WithCancel(context.Background())
			var procs []*proc
			var held []*distlock.TryGuard
			for i := range many {
				procs = append(procs, w.start(nil))
				held = append(held, procs[i].mustTry(fmt.Sprint("own ", i)))
			}
			told := make(chan error, many)
			for i, g := range held {
				p, next := procs[i], fmt.Sprint("own ", (i+1)%many)
				if i%3 < every {
					turns := p.queueCtx(ctx, next, distlock.Holding(g))
					go func() { told <- (<-turns).err }()
				} else {
					under, end := context.WithCancel(g.Context())
					context.AfterFunc(ctx, end)
					done := p.transact(under, next)
					go func() { told <- <-done }()
				}
				time.Sleep(400 * time.Millisecond)
			}
			start := time.Now()
			select {
			case err := <-told:
				wantDeadlock(t, err)
			case <-time.After(30 * time.Second):
				leave()
				t.Fatal("nobody is told")
			}
			if took := time.Since(start); took > toldAtMost {
				t.Errorf("told after %v, want at most %v", took, toldAtMost)
			}
			time.Sleep(30 * time.Second)
			leave()
			for range many - 1 {
				wantErr(t, <-told, context.Canceled)
			}
			for _, g := range held {
				w.release(g)
			}
		})
	}
}

// Tries to break: nobody is told of a circle through somebody who has left it and whose process
// cannot say so: its note is old, however often it is read.
func TestDeadlock_OutsiderLeftAndItsNoteStays_NobodyIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, l := w.start(nil), w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		left := []func(){w.fill(l, "a"), w.fill(l, "b")}
		ctx, cancel := context.WithCancel(ga.Context())
		first := a.queueCtx(ctx, "b")
		time.Sleep(10 * time.Second)
		a.store.Set(fault.Refusing(fault.PutNote))
		cancel()
		wantErr(t, (<-first).err, context.Canceled)
		second := b.queueCtx(gb.Context(), "a")
		time.Sleep(10 * time.Minute)
		w.wantWaiting(second)
		a.store.Set(nil)
		for _, leave := range left {
			leave()
		}
		w.release(ga)
		w.release(w.wantTurn(second))
		w.release(gb)
	})
}

// What it costs: nobody who holds nothing is noted, nor whoever waits for less than a second; and
// whoever is costs one write a second, however many they are.
func TestDeadlock_Notes_AreFew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, l := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		left := w.fill(l, "a")
		plain := b.queue("a")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, b.store.Count(fault.PutNote), 0, "%d notes of one who holds nothing, want %d")
		ctx, cancel := context.WithCancel(context.Background())
		var outside []<-chan turn
		for i := range 80 {
			held := b.mustTry(fmt.Sprintf("held %d", i))
			outside = append(outside, b.queueCtx(ctx, "a", distlock.Holding(held)))
		}
		time.Sleep(10 * time.Second)
		if n := b.store.Count(fault.PutNote); n < 9 || n > 10 {
			t.Errorf("%d notes in ten seconds", n)
		}
		ping, _ := catalog.ParsePing(w.mem.Document(catalog.PingsCollection, b.Process()))
		if ping.Note == nil || len(ping.Note.Outsiders) != 64 {
			t.Errorf("the note is %+v", ping.Note)
		}
		cancel()
		for _, done := range outside {
			wantErr(t, (<-done).err, context.Canceled)
		}
		time.Sleep(2 * time.Second)
		before := b.store.Count(fault.PutNote)
		time.Sleep(time.Minute)
		assert.Equal(t, b.store.Count(fault.PutNote)-before, 0,
			"%d notes when nobody waits outside, want %d")
		w.release(g)
		left()
		w.release(w.wantTurn(plain))
	})
}

// Tries to break: a search that fails is told once when it begins to and once when it ends, and
// tried again.
func TestDeadlock_SearchFails_IsLoggedAndTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		a := w.start(nil)
		b := w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log).Level(zerolog.InfoLevel) })
		ga, gb := a.mustTry("a"), b.mustTry("b")
		older := a.queueCtx(ga.Context(), "b")
		time.Sleep(time.Minute)
		b.store.Set(fault.On(fault.WaitedUnder, func(func() error) error {
			return errors.New("refused on purpose")
		}))
		younger := b.queueCtx(gb.Context(), "a")
		time.Sleep(time.Hour)
		w.wantWaiting(younger)
		b.store.Set(nil)
		start := time.Now()
		wantDeadlock(t, (<-younger).err)
		if took := time.Since(start); took > toldAtMost {
			t.Errorf("told %v after the server answers again", took)
		}
		for text, want := range map[string]int{
			"search for deadlocks failed": 1, "search for deadlocks succeeds again": 1,
		} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%d times %q in the log, want %d:\n%s", n, text, want, log.String())
			}
		}
		w.release(gb)
		w.release(w.wantTurn(older))
		w.release(ga)
	})
}

// Tries to break: the notes of who waits outside go on each second while a search reads for long:
// others wait for two of them before they tell anybody of a circle.
func TestDeadlock_SearchReadsForLong_NotesGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, l := w.start(nil), w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		left := w.fill(l, "a")
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Look || call.Op == fault.WaitedUnder {
				time.Sleep(3 * time.Second)
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(gb.Context())
		outside := b.queueCtx(ctx, "a")
		time.Sleep(20 * time.Second)
		if n := b.store.Count(fault.PutNote); n < 17 || n > 20 {
			t.Errorf("%d notes in twenty seconds", n)
		}
		b.store.Set(nil)
		cancel()
		wantErr(t, (<-outside).err, context.Canceled)
		time.Sleep(5 * time.Second)
		left()
		w.release(ga)
		w.release(gb)
	})
}
