package claim

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// It tries to break: the stream tells of rows that another queue of the collection makes ready again, of
// which it does not say whose they are. Ten a second cost about a question a Poll, and a row of the own
// queue is begun within a Poll.
func TestRun_RowsOfAnotherQueue_CostAQuestionAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		begun := make(chan time.Time, 1)
		defer p.run(t, func(context.Context, *Row[item]) error { begun <- time.Now(); return nil })()
		time.Sleep(time.Minute)
		tell := func(n int) {
			for i := range n {
				id := bson.RawValue{Type: bson.TypeInt32, Value: []byte{byte(i), byte(i >> 8), 1, 0}}
				p.e.arrivals.hear(rows.Event{Kind: rows.Arrived, ID: id})
				time.Sleep(100 * time.Millisecond)
			}
		}
		before := p.gate.count("mark one")
		tell(1200)
		n := p.gate.count("mark one") - before
		if t.Logf("asked %d times in two minutes", n); n > 2*120 {
			t.Error("want about once a Poll")
		}
		w.add(0, 1)
		came := time.Now()
		tell(20)
		if late := (<-begun).Sub(came); late > 1200*time.Millisecond {
			t.Errorf("the own row was begun after %v", late)
		}
	})
}
