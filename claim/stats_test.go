package claim

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/metricstest"
)

// A deep is a store that counts how often it was asked for its depth.
type deep struct {
	rows.Store
	asked *int
}

func (d deep) Depth(ctx context.Context, now time.Time, most int64) (rows.Depth, error) {
	*d.asked++
	return d.Store.Depth(ctx, now, most)
}

// observedProc starts a process whose Manager has an observer.
func (w *world) observedProc(cfg Config, asked *int) (*proc, *metricstest.Kept) {
	w.t.Helper()
	k := &metricstest.Kept{}
	m := w.StartBy(clock.System(), func(c *distlock.Config) { c.Observer = k })
	ctx := clock.With(w.t.Context(), clock.System())
	q := onStore[item](ctx, m.Manager, deep{w.rows, asked}, "db.rows", cfg.withDefaults())
	p := &proc{q, m.Manager, m.Store, nil}
	w.t.Cleanup(func() {
		_ = p.Close(context.Background())
		assert.Equal(w.t, k.Ask(context.Background()), 0,
			"%d values of a queue that is closed, want %d")
	})
	return p, k
}

// One process of a queue answers how many rows there are, and for how long they wait; each what
// became of its own. Nothing is asked of the server before somebody reads.
func TestStats_OfAQueue_OneProcessAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Due("at")
		for i, due := range []time.Duration{-time.Hour, 0, 0, 0, 0, 0, 0, 0, 0, 24 * time.Hour} {
			doc := bson.D{{Key: "_id", Value: i}, {Key: "at", Value: time.Now().Add(due)}}
			assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
		}
		asked := 0
		var kept []*metricstest.Kept
		for range 3 {
			p, k := w.observedProc(Config{Due: "at", MaxAttempts: 2}, &asked)
			kept = append(kept, k)
			p.run(t, func(ctx context.Context, r *Row[item]) error {
				select {
				case <-time.After(10 * time.Minute):
				case <-ctx.Done():
				}
				if r.Doc.ID == 0 {
					return errors.New("fails")
				}
				return ctx.Err()
			})
		}
		time.Sleep(5 * time.Minute)
		assert.Equal(t, asked, 0, "asked %d times before anybody reads, want %d")
		answers := 0
		var by *metricstest.Kept
		for _, k := range kept {
			if n := k.Ask(t.Context()); n > 1 {
				answers++
				by = k
			}
			if age, ok := k.Of(metrics.Oldest, "claimed", "db.rows:queue"); !ok || age < 280 || age > 300 {
				t.Errorf("its oldest row is claimed for %v seconds (%t)", age, ok)
			}
		}
		if answers != 1 || asked != 1 {
			t.Fatalf("%d processes answer, by %d readings of the depth; want one, 1", answers, asked)
		}
		want := func(k *metricstest.Kept, least, most float64, m *metrics.Metric, label string) {
			t.Helper()
			if v, ok := k.Of(m, label, "db.rows:queue"); !ok || v < least || v > most {
				t.Errorf("%s %s is %v (%t), want %v to %v", m.Name, label, v, ok, least, most)
			}
		}
		want(by, 6, 6, metrics.Rows, "ready")
		want(by, 3, 3, metrics.Rows, "claimed")
		want(by, 1, 1, metrics.Rows, "later")
		want(by, 0, 0, metrics.Rows, "dead")
		want(by, 290, 310, metrics.Oldest, "ready")
		want(by, 290, 310, metrics.Oldest, "late")
		time.Sleep(2 * time.Hour)
		sum := map[string]float64{}
		took := 0.0
		for _, k := range kept {
			for _, outcome := range metrics.Attempts.Outcomes {
				v, ok := k.Of(metrics.Attempts, outcome, "db.rows:queue")
				if sum[outcome] += v; !ok {
					t.Errorf("%s does not begin with zero", outcome)
				}
			}
			v, _ := k.Of(metrics.HandlerTime, "db.rows:queue")
			took += v
		}
		ended := map[string]float64{"done": 8, "retrying": 1, "dead": 1, "lost": 0, "given_back": 0}
		if !maps.Equal(sum, ended) || took != 10*600 {
			t.Errorf("%v, %v s of work", sum, took)
		}
	})
}

// What became of each claim is counted once, as its row says: without an attempt it was given back.
func TestStats_Attempts_AsTheyEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 8)
		asked := 0
		p, k := w.observedProc(Config{Workers: 8, Tend: time.Second}, &asked)
		p.e.store = &gate{Store: w.rows, inside: &[]rows.Ending{}}
		p.run(t, func(ctx context.Context, r *Row[item]) error {
			switch r.Doc.ID {
			case 0:
				return errors.New("fails")
			case 1:
				return Discard(errors.New("never"))
			case 2:
				return Snooze(time.Hour)
			case 3:
				return r.GiveBack(ctx)
			case 4:
				return p.Cancel(ctx, 4)
			case 5:
				w.rows.Strip(r.ID())
			case 6:
				w.rows.Strip(r.ID())
				_ = r.DoneWith(ctx, func(context.Context) error { return nil })
			}
			return nil
		})
		time.Sleep(500 * time.Millisecond)
		for outcome, want := range map[string]float64{
			"done": 2, "retrying": 1, "dead": 1, "given_back": 2, "lost": 2,
		} {
			if n, _ := k.Of(metrics.Attempts, outcome, "db.rows:queue"); n != want {
				t.Errorf("%v %s, want %v", n, outcome, want)
			}
		}
	})
}
