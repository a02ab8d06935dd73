package claim

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// obituaries are what OnDead was told, by process.
type obituaries struct {
	mu   sync.Mutex // guards told
	told []string
}

func (o *obituaries) of(process string, t *testing.T) func(context.Context, Info) {
	return func(ctx context.Context, row Info) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if ctx.Err() != nil || row.State != StateDead || row.DeadAt.IsZero() ||
			row.Doc.Lookup("child").Type == 0 {
			t.Errorf("%v, %+v", ctx.Err(), row)
		}
		o.told = append(o.told, fmt.Sprintf("%s: row %d after %d, %d errors, %s", process,
			row.ID.AsInt64(), row.Attempts, len(row.Errors), row.LastError))
	}
}

func (o *obituaries) want(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.told)
	if !slices.Equal(o.told, want) {
		t.Errorf("told of\n%s, want\n%s", strings.Join(o.told, "\n"), strings.Join(want, "\n"))
	}
}

// Each row that is dead is told of once, by the process that has recorded it, however it died;
// others are not told of. A row costs one command more by that.
func TestOnDead_EachDeath_Once(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 4)
		var o obituaries
		a := w.start(Config{MaxAttempts: 2, Backoff: time.Second, Workers: 4, OnDead: o.of("a", t)})
		b := w.start(Config{MaxAttempts: 2, OnDead: o.of("b", t)})
		stop := a.run(t, func(ctx context.Context, row *Row[item]) error {
			switch row.Doc.ID {
			case 0:
				return errBroken
			case 1:
				return Discard(errBroken)
			case 2:
				<-ctx.Done()
				return row.Fail(context.WithoutCancel(ctx), Discard(errBroken)) // it is cancelled
			}
			return nil
		})
		w.settle(time.Minute, are(Counts{Dead: 2, Claimed: 1, Done: 1}))
		assert.Must(t, b.Cancel(t.Context(), 2))
		time.Sleep(time.Minute)
		stop()
		w.add(9, 1)
		assert.Must(t, b.Cancel(t.Context(), 9))
		time.Sleep(time.Second)
		if n := a.gate.count("finish"); n > 5 {
			t.Errorf("%d commands for five endings: %v", n, a.gate.tally())
		}
		o.want(t, "a: row 0 after 2, 2 errors, broken", "a: row 1 after 1, 1 errors, broken",
			"a: row 2 after 1, 0 errors, cancelled", "b: row 9 after 0, 0 errors, cancelled")
	})
}

// It tries to break: rows that die with their process, or with their lease, are told of once by the
// process that rescues them, with their documents; those that do not die are not.
func TestOnDead_RescuedAtTheLastAttempt_Once(t *testing.T) {
	for name, lease := range map[string]time.Duration{"process": 0, "lease": 2 * time.Minute} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			var o obituaries
			cfg := Config{MaxAttempts: 1, InFlight: 3, Lease: lease, OnDead: o.of("others", t)}
			w.start(cfg).take(t, 1) // none; it looks after the rows of all
			time.Sleep(time.Second)
			w.add(0, 3)
			cfg.OnDead = o.of("first", t)
			first := w.start(cfg)
			assert.Must(t, first.take(t, 3)[2].Done(t.Context()))
			first.cut()
			cfg.OnDead = o.of("others", t)
			for range 3 {
				w.start(cfg).run(t, atOnce)
			}
			w.settle(3*takeoverTime, func(c Counts) bool { return c.Dead == 2 })
			time.Sleep(takeoverTime)
			why := rows.GivenUp
			if lease > 0 {
				why = rows.Expired
			}
			o.want(t, "others: row 0 after 1, 1 errors, "+why, "others: row 1 after 1, 1 errors, "+why)
		})
	}
}

// It tries to break: an OnDead that panics, ends its goroutine or hangs holds up no row. Close
// waits for it, and ends it with its own context.
func TestOnDead_PanicsOrHangs_HoldsUpNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 20)
		var calls atomic.Int64
		var ended atomic.Bool
		p := w.start(Config{MaxAttempts: 1, OnDead: func(ctx context.Context, row Info) {
			switch calls.Add(1) {
			case 1:
				panic("boom")
			case 2:
				runtime.Goexit()
			}
			<-ctx.Done()
			ended.Store(true)
		}})
		stop := p.run(t, func(context.Context, *Row[item]) error { return errBroken })
		w.settle(time.Minute, func(c Counts) bool { return c.Dead == 20 })
		stop()
		synctest.Wait() // OnDead may be told of the first rows yet
		if calls.Load() != 3 || w.logs.with("OnDead panicked", "boom", "dead_test.go") != 1 {
			t.Errorf("%d calls, %v", calls.Load(), w.logs)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		wantErr(t, p.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(begun); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := p.Close(t.Context()); err != nil || !ended.Load() || calls.Load() != 20 {
			t.Errorf("%v, ended %v after %d calls", err, ended.Load(), calls.Load())
		}
	})
}
