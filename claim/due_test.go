package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// addDue adds rows that are due after these times by the server's clock, numbered from 0.
func (w *world) addDue(field string, after ...time.Duration) {
	w.t.Helper()
	now := assert.Value(w.rows.Now(w.t.Context()))(w.t)
	for i, d := range after {
		doc := bson.D{{Key: "_id", Value: i}, {Key: field, Value: now.Add(d)}}
		if d < 0 {
			doc = doc[:1]
		}
		assert.Must(w.t, w.rows.Insert(w.t.Context(), []any{doc}))
	}
}

// addAt adds a row that is due then.
func (w *world) addAt(id int, due time.Time) {
	doc := bson.D{{Key: "_id", Value: id}, {Key: "execute_at", Value: due}}
	assert.Must(w.t, w.rows.Insert(w.t.Context(), []any{doc}))
}

// Rows are given in the order of their time and not before the server's clock has passed it,
// whatever the clocks of the processes say: an hour ahead, an hour behind, the server's a day
// behind. One without a date is never given.
func TestDue_ClocksApart_InOrderAndNeverEarly(t *testing.T) {
	for name, batch := range map[string]int{"one": 1, "batch": 4} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.rows.Due("execute_at").SetClock(-24 * time.Hour)
			base := time.Now()
			const m = time.Minute
			w.addDue("execute_at", 50*m, 20*m, -1, 90*m, 0, 20*m+time.Second)
			w.want(Counts{Ready: 1, Later: 5})
			var mu sync.Mutex // guards order and at while it runs
			var order []int
			at := map[int]time.Duration{}
			for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
				p := w.startWrong(wrong, Config{Due: "execute_at", Batch: batch})
				p.run(t, func(_ context.Context, row *Row[item]) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, row.Doc.ID)
					at[row.Doc.ID] = time.Since(base)
					return nil
				})
			}
			w.settle(2*time.Hour, are(Counts{Done: 5, Later: 1}))
			assert.Slices(t, order, []int{4, 1, 5, 0, 3}, "the order is %v, want %v")
			for id, due := range map[int]time.Duration{0: 50 * m, 1: 20 * m, 3: 90 * m} {
				if late := at[id] - due; late < 0 || late > 60*time.Millisecond {
					t.Errorf("row %d was given %v after it was due", id, late)
				}
			}
		})
	}
}

// It tries to break: who waits for a row's time, by a clock of the server that is set then, goes on
// to wait for as long.
func TestDue_ServersClockIsSetAhead_WithinAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		w.addDue("execute_at", 3*time.Hour)
		p := w.start(Config{Due: "execute_at", Poll: time.Minute})
		begun := make(chan time.Time, 1)
		p.run(t, func(context.Context, *Row[item]) error { begun <- time.Now(); return nil })
		time.Sleep(time.Hour)
		w.rows.SetClock(3 * time.Hour)
		set := time.Now()
		if late := (<-begun).Sub(set); late > clockAge+10*time.Second {
			t.Errorf("begun after %v", late)
		}
	})
}

// A row that failed is given again in the order of its due time: it is the one that waits longest.
func TestDue_RetriedRows_AreFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("plan.at")
		now := time.Now()
		for i := range 20 {
			doc := bson.M{"_id": i, "plan": bson.M{"at": now.Add(time.Duration(i))}}
			assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
		}
		p := w.start(Config{Due: "plan.at", Backoff: 5 * time.Second})
		var order []int
		p.run(t, func(_ context.Context, row *Row[item]) error {
			order = append(order, row.Doc.ID)
			time.Sleep(time.Second)
			if row.Doc.ID == 0 && row.Attempt() == 1 {
				return errors.New("on purpose")
			}
			return nil
		})
		w.settle(time.Minute, allDone(20))
		if i := slices.Index(order[1:], 0) + 1; i < 5 || i > 8 {
			t.Errorf("the order is %v, want row 0 again after about 5 s", order)
		}
	})
}

// The pause before a retry is what Backoff says, give or take a fifth, and costs one command more
// than the retry itself, at any Tend.
func TestRetry_ComesWhenItIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{Tend: time.Hour, Poll: time.Hour, Backoff: time.Second, MaxAttempts: 4})
		var at []time.Time
		p.run(t, func(_ context.Context, row *Row[item]) error {
			at = append(at, time.Now())
			return errors.New("on purpose")
		})
		time.Sleep(3 * time.Second)
		before := p.gate.count("tidy", "batches", "current", "clock")
		w.add(0, 1)
		w.settle(time.Minute, func(c Counts) bool { return c.Dead == 1 })
		for i, pause := 1, time.Second; i < len(at); i, pause = i+1, 2*pause {
			if got := at[i].Sub(at[i-1]); got < pause*4/5 || got > pause*6/5+50*time.Millisecond {
				t.Errorf("pause %d is %v, want about %v", i, got, pause)
			}
		}
		if n := p.gate.count("tidy", "batches", "current", "clock") - before; len(at) != 4 || n != 3 {
			t.Errorf("%d attempts and %d commands for retries, want 4 and 3: %v", len(at), n, p.gate.tally())
		}
	})
}

// A pause is not shorter than it was said to be, whatever is left of the milliseconds that servers
// tell and rows keep: with the least that chance gives, a retry came a fifth and a bit too early.
func TestRetry_IsNotEarlyByAPartOfAMillisecond(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 20 {
			time.Sleep(time.Millisecond + 53*time.Microsecond)
			p := w.start(Config{})
			endings := []rows.Ending{{To: rows.Retrying, Pause: time.Second}, {To: rows.Retrying}}
			assert.Must(t, p.e.putOff(t.Context(), endings))
			first, second := time.Until(endings[0].NotBefore), time.Until(endings[1].NotBefore)
			if first < time.Second || first > time.Second+2*time.Millisecond || second > 0 {
				t.Errorf("a pause of 1s is %v, and none is %v", first, second)
			}
		}
	})
}

// A thousand rows that fail at about the same time are looked for together.
func TestRetry_Many_AreLookedForTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1000)
		p := w.start(Config{Workers: 50, Batch: 50, Tend: time.Hour, Backoff: time.Second})
		p.run(t, func(_ context.Context, row *Row[item]) error {
			time.Sleep(time.Millisecond)
			if row.Attempt() == 1 {
				return errors.New("on purpose")
			}
			return nil
		})
		begun := time.Now()
		w.settle(3*time.Second, allDone(1000))
		took := time.Since(begun)
		if n := p.gate.count("tidy"); n > int(took/gather) {
			t.Errorf("looked %d times for retries in %v", n, took)
		}
	})
}

// The server's clock is read once a minute at most, and a step of it is noticed within a minute.
func TestServerClock_IsReadOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		w.addDue("execute_at", time.Hour)
		p := w.start(Config{Due: "execute_at", Poll: 50 * time.Millisecond})
		p.run(t, atOnce)
		time.Sleep(30 * time.Minute)
		if n := p.gate.count("clock"); n < 29 || n > 31 {
			t.Errorf("the clock was read %d times in 30 minutes", n)
		}
		w.rows.SetClock(time.Hour)
		w.settle(time.Minute+10*time.Second, allDone(1)) // a minute and a Tend
	})
}

// A clock that cannot be read ends no claim and gives no row: both are tried again.
func TestServerClock_CannotBeRead_NothingIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		w.addDue("execute_at", 0, 0)
		p := w.start(Config{Due: "execute_at", InFlight: 2})
		row := p.take(t, 1)[0]
		p.gate.fail("clock")
		time.Sleep(2 * time.Minute)
		wantErr(t, assert.Err(p.Claim(t.Context(), 1)), errCut)
		wantErr(t, row.Fail(t.Context(), errors.New("on purpose")), errCut)
		p.gate.set(nil)
		assert.NoErr(t, row.Fail(t.Context(), errors.New("on purpose")))
		assert.Equal(t, len(p.take(t, 1)), 1, "%d rows, want %d")
	})
}

// What Due cannot be is said by New.
func TestConfig_Due_Problems(t *testing.T) {
	for due, want := range map[string]string{
		"": "", "execute_at": "", "plan.at": "", "claim": "belongs", "claim.at": "belongs",
		"$at": "dollar", "a.$b": "dollar", "a..b": "dotted", ".a": "dotted", "a.": "dotted",
		"a\x00": "dotted", "n": "Sort names",
	} {
		cfg := Config{Due: due, Sort: bson.D{{Key: "n", Value: 1}}}.withDefaults()
		got := strings.Join(cfg.problems(), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("Due %q: %q, want %q", due, got, want)
		}
	}
}

// It tries to break: rows that become due are asked for by every idle process, or by none in time.
// A row costs what one costs that comes, and is begun when it is due.
func TestDue_IdleProcesses_CommandsAnItem(t *testing.T) {
	for _, each := range []time.Duration{0, 5 * time.Millisecond} {
		for _, n := range []int{1, 5, 20, 100} {
			inBubbleSub(t, fmt.Sprint(n, " processes ", each), func(t *testing.T, w *world) {
				w.rows.Due("execute_at")
				got := idling(t, w, Config{Due: "execute_at"}, n, 1200, each, 100*time.Millisecond)
				if got.commands > 3.5 || got.median > 50*time.Millisecond ||
					n == 1 && got.p99 > 4*each+2*time.Millisecond {
					t.Error("want no more than with one process")
				}
				t.Logf("%.2f commands an item, begun after %v, p99 %v", got.commands, got.median, got.p99)
			})
		}
	}
}
