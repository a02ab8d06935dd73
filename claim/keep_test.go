package claim

import (
	"context"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// It tries to break: rows that are done are kept for as long as was said, by the server's clock,
// and removed soon afterwards by one process of the queue; what is dead or not done stays.
func TestKeepDone_RemovedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 12)
		var others []*proc
		for _, wrong := range []time.Duration{-3 * time.Hour, 3 * time.Hour, 0} {
			p := w.startWrong(wrong, Config{MaxAttempts: 1, KeepDone: time.Hour})
			others = append(others, p)
			p.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID == 10 || row.Doc.ID == 11 {
					return Discard(errBroken)
				}
				return nil
			})
		}
		w.settle(time.Minute, are(Counts{Done: 10, Dead: 2}))
		time.Sleep(59 * time.Minute)
		if c := w.counts(); c.Done != 10 {
			t.Errorf("after 59 minutes %+v", c)
		}
		w.settle(3*time.Minute, are(Counts{Dead: 2}))
		w.add(20, 1)
		w.settle(2*time.Hour, are(Counts{Done: 1, Dead: 2}))
		w.settle(2*time.Hour, are(Counts{Dead: 2}))
		purging := 0
		for _, p := range others {
			if p.gate.count("purge") > 0 {
				purging++
			}
		}
		assert.Equal(t, purging, 1, "%d processes remove rows, want %d")
	})
}

// A round removes many, but not all there may be; and nothing is asked for without KeepDone.
func TestKeepDone_ManyRows_ManyRounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 1000*purgeLots + 500
		w.add(0, n)
		p := w.start(Config{Workers: 100, Batch: 1000, InFlight: 10_000})
		stop := p.run(t, atOnce)
		w.settle(5*time.Minute, allDone(n))
		stop()
		if p.gate.count("purge") != 0 {
			t.Error("rows are removed that are to stay")
		}
		assert.NoErr(t, p.Close(t.Context()))
		keeps := w.start(Config{KeepDone: time.Millisecond})
		keeps.take(t, 1)
		w.settle(time.Minute, func(c Counts) bool { return c.Done == 500 })
		w.settle(5*time.Minute, are(Counts{}))
	})
}
