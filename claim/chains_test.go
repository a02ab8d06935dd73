package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// Several processes handle the rows of a chain in order, one at a time, even if attempts fail.
func TestChains_ProcessesRace_InOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n, keys = 300, 20
		w.rows.Keyed("chain")
		for i := range n {
			doc := item{ID: i, Chain: fmt.Sprint("k", i%keys)}
			assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
		}
		var mu sync.Mutex
		busy, last := map[string]bool{}, map[string]int{}
		var procs []*proc
		for range 6 {
			p := w.start(Config{Key: "chain", Workers: 3, Backoff: time.Second})
			procs = append(procs, p)
			p.run(t, func(_ context.Context, row *Row[item]) error {
				key := row.Doc.Chain
				mu.Lock()
				if before, is := last[key]; busy[key] || is && row.Doc.ID != before+keys {
					t.Errorf("row %d of %s begins after %d, busy %v", row.Doc.ID, key, before, busy[key])
				}
				busy[key] = true
				mu.Unlock()
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				busy[key] = false
				if row.Doc.ID%10 == 0 && row.Attempt() < 3 {
					return errors.New("broken")
				}
				last[key] = row.Doc.ID
				return nil
			})
		}
		w.settle(10*time.Minute, allDone(n))
		claims := 0
		for _, p := range procs {
			claims += p.gate.count("claim", "held", "end")
		}
		t.Logf("%.2f commands per row", float64(claims)/n)
	})
}

// A dead row does not block its chain, even if an operator marks the row as the holder of the
// chain's key.
func TestChains_DeadRow_LetsItsKeyGo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Keyed("chain")
		for i := range 4 {
			assert.Must(t, w.rows.Insert(t.Context(), []any{item{ID: i, Chain: "x"}}))
		}
		p := w.start(Config{Key: "chain", MaxAttempts: 1})
		p.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				return errors.New("broken")
			}
			return nil
		})
		w.settle(time.Minute, are(Counts{Dead: 1, Done: 3}))
		w.rows.Edit(w.row(0).ID, func(m *rows.Mark) { m.Holds = "chain" })
		assert.Must(t, w.rows.Insert(t.Context(), []any{item{ID: 9, Chain: "x"}}))
		w.settle(2*time.Minute, are(Counts{Dead: 1, Done: 4}))
	})
}

// Add refuses a document with a list as its key, because the row could never be claimed.
func TestChains_AList_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		q := &Queue[bson.M]{e: p.e}
		p.e.cfg.Key = "of.key"
		err := q.Add(t.Context(), bson.M{"_id": 1, "of": bson.M{"key": bson.A{1, 2}}})
		if err == nil || w.counts() != (Counts{}) {
			t.Errorf("%v, %+v", err, w.counts())
		}
	})
}
