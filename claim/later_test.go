package claim

import (
	"context"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// lates runs a queue and notes how long after base each row began, by its number.
func (p *proc) lates(t *testing.T, base time.Time) map[int]time.Duration {
	var mu sync.Mutex // guards late while it runs
	late := map[int]time.Duration{}
	p.run(t, func(_ context.Context, row *Row[item]) error {
		mu.Lock()
		defer mu.Unlock()
		late[row.Doc.ID] = time.Since(base)
		return nil
	})
	return late
}

// Without a change stream one idle process is in time, too: for rows that were there when it
// looked, or that it added, and up to a Poll late for those of others. It costs what polling does.
func TestDue_NoStream(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		w.addAt(0, base.Add(1500*time.Millisecond))
		w.addAt(1, base.Add(90500*time.Millisecond))
		p := w.start(Config{Due: "execute_at"})
		p.gate.deaf = true
		late := p.lates(t, base)
		time.Sleep(20 * time.Second)
		w.addAt(2, base.Add(30*time.Second+333*time.Millisecond))
		assert.Must(t, p.Add(t.Context(), item{ID: 3, Due: base.Add(25 * time.Second)}))
		w.settle(3*time.Minute, allDone(4))
		for id, due := range []time.Duration{1500 * time.Millisecond, 90500 * time.Millisecond,
			30333 * time.Millisecond, 25 * time.Second} {
			most := 60 * time.Millisecond
			if id == 2 {
				most = 1200 * time.Millisecond
			}
			if got := late[id] - due; got < 0 || got > most {
				t.Errorf("row %d began %v after it was due", id, got)
			}
		}
		if n := p.gate.count("mark one", "later"); n > 130 {
			t.Errorf("%d commands in 90 s of polling each second", n)
		}
	})
}

// A row that a program puts off, or brings forward, begins at its new time.
func TestDue_Rescheduled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		at := func(seconds int) time.Time { return base.Add(time.Duration(seconds) * time.Second) }
		for id, seconds := range []int{600, 300, 400, 30} {
			w.addAt(id, at(seconds))
		}
		p := w.start(Config{Due: "execute_at"})
		late := p.lates(t, base)
		time.Sleep(20 * time.Second)
		w.rows.Reschedule(w.row(0).ID, at(60))
		w.rows.Reschedule(w.row(1).ID, at(500))
		w.rows.Reschedule(w.row(2).ID, at(0)) // now
		w.settle(time.Hour, allDone(4))
		for id, seconds := range []int{60, 500, 20, 30} {
			if got := late[id] - time.Duration(seconds)*time.Second; got < 0 || got > 60*time.Millisecond {
				t.Errorf("row %d began %v after it was due", id, got)
			}
		}
		if n := p.gate.count("mark one"); n > 15 {
			t.Errorf("asked %d times", n)
		}
	})
}

// More rows than a process remembers, 2,500 of them due at one instant: all are in time, and what
// is due later is read once in a while.
func TestDue_MoreThanAreRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		for i := range 7500 {
			w.addAt(i, base.Add(time.Minute+time.Duration(max(i, 2500))*10*time.Millisecond))
		}
		a := w.start(Config{Due: "execute_at", Batch: 50, Workers: 10})
		late := a.lates(t, base)
		w.settle(10*time.Minute, allDone(7500))
		for i := range 7500 {
			due := time.Minute + time.Duration(max(i, 2500))*10*time.Millisecond
			if got := late[i] - due; got < 0 || got > 100*time.Millisecond {
				t.Fatalf("row %d began %v after it was due", i, got)
			}
		}
		if n := a.gate.count("later"); n > 20 {
			t.Errorf("read %d times what is due next", n)
		}
	})
}

// What is due next cannot be read for a while: the process does not ask in a circle, and finds the
// row all the same.
func TestDue_NextCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		w.addAt(0, base.Add(time.Minute))
		p := w.start(Config{Due: "execute_at"})
		p.gate.on(func(apply func() error) error {
			if time.Since(base) < 30*time.Second {
				return errCut
			}
			return apply()
		}, "later")
		late := p.lates(t, base)
		w.settle(time.Hour, allDone(1))
		n, began := p.gate.count("later"), late[0]
		if n > 60 || began < time.Minute || began > time.Minute+60*time.Millisecond {
			t.Errorf("read %d times, began after %v", n, began)
		}
	})
}

// Rows that are cancelled or deleted before their time, and one of the year 9999, cost nothing.
func TestDue_Dropped_NobodyAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		for i := range 100 {
			w.addAt(i, base.Add(time.Minute+time.Duration(i)*time.Second))
		}
		w.addAt(100, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		p := w.start(Config{Due: "execute_at"})
		p.lates(t, base)
		time.Sleep(30 * time.Second)
		for i := range 100 {
			w.rows.Drop(w.row(i).ID, i%2 == 0)
		}
		before := p.gate.count("mark one", "later")
		time.Sleep(4 * time.Minute)
		if n := p.gate.count("mark one", "later") - before; n > 10 {
			t.Errorf("asked %d times for rows that are gone", n)
		}
		time.Sleep(10 * time.Minute)
		if n := p.gate.count("mark one", "later") - before; n < 3 {
			t.Errorf("looked %d times in 14 minutes", n)
		}
	})
}

// A row that is ready again and due later, of which the stream does not say when, is in time.
func TestDue_ReadyAgainForLater_IsInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		base := time.Now()
		w.addAt(0, base)
		p := w.start(Config{Due: "execute_at", MaxAttempts: 1})
		p.gate.forgets = true
		var began []time.Duration
		p.run(t, func(_ context.Context, row *Row[item]) error {
			began = append(began, time.Since(base))
			if len(began) == 1 {
				w.rows.Reschedule(row.ID(), base.Add(10*time.Minute))
				return Snooze(time.Second)
			}
			return nil
		})
		w.settle(time.Hour, allDone(1))
		const turn = 200 * time.Millisecond // of a process that has asked in vain a few times
		if late := began[1] - 10*time.Minute; late < 0 || late > turn {
			t.Errorf("it began at %v", began)
		}
	})
}

// Many rows that are due at one instant are worked on without pauses, by processes that have
// learned to wait for each other.
func TestDue_ManyAtOnce_NoPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("execute_at")
		const n, first = 20, 600
		base := time.Now().Add(time.Minute)
		for i := range first {
			w.addAt(i, base.Add(time.Duration(i)*50*time.Millisecond))
		}
		late := map[int]time.Duration{}
		var mu sync.Mutex // guards late
		together := base.Add(time.Minute)
		for i := range 60 * n {
			w.addAt(first+i, together)
		}
		for range n {
			p := w.start(Config{Due: "execute_at"})
			p.slow(5 * time.Millisecond)
			p.run(t, func(_ context.Context, row *Row[item]) error {
				mu.Lock()
				defer mu.Unlock()
				late[row.Doc.ID] = time.Since(together)
				return nil
			})
		}
		w.settle(10*time.Minute, allDone(first+60*n))
		most := time.Duration(0)
		for i := range 60 * n {
			most = max(most, late[first+i])
		}
		t.Logf("the last of %d began after %v", 60*n, most)
		if most > 3*time.Second {
			t.Errorf("the last of %d began after %v", 60*n, most)
		}
	})
}
