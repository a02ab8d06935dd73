package claim

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/memrows"
)

// A dead row does not block its chain, even if an operator marks the row as the holder of the
// chain's key.
func TestChains_DeadRow_LetsItsKeyGo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Key: "chain"})
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
