package claim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// slow makes commands take about this time each way, and the stream of a process tell later.
func (p *proc) slow(each time.Duration) {
	p.gate.set(func(_ context.Context, _ string, apply func() error) error {
		time.Sleep(rand.N(each + 1))
		defer func() { time.Sleep(rand.N(each + 1)) }()
		return apply()
	})
	p.gate.lag(0, each)
}

// cost is what rows cost that come to idle processes.
type cost struct {
	commands    float64 // a row, to claim and to complete
	median, p99 time.Duration
}

// idling lets rows come to n processes that have nothing to do. With Due half of them are there
// from the beginning, and the others come when they are due or up to a minute earlier.
func idling(t *testing.T, w *world, cfg Config, n, items int, each, between time.Duration) cost {
	var mu sync.Mutex // guards begun
	var begun []time.Duration
	came := make([]time.Time, items)
	var procs []*proc
	w.rare = true // the line of those who would rescue rows is as long as there are processes
	first := time.Now().Add(time.Minute).Truncate(time.Millisecond)
	insert := func(i int) { w.addAt(i, came[i]) }
	for i := range items {
		came[i] = first.Add(time.Duration(i) * between)
		if cfg.Due != "" && i%2 == 0 {
			insert(i)
		}
	}
	for range n {
		p := w.start(cfg)
		p.slow(each)
		procs = append(procs, p)
		p.run(t, func(_ context.Context, row *Row[item]) error {
			late := time.Since(came[row.Doc.ID])
			if late < 0 {
				t.Errorf("row %d was given %v early", row.Doc.ID, -late)
			}
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, late)
			return nil
		})
	}
	time.Sleep(time.Until(first))
	sent := func() (all int) {
		for _, p := range procs {
			all += p.gate.sent()
		}
		return all
	}
	before := sent()
	for i := range items {
		if cfg.Due == "" {
			time.Sleep(time.Until(came[i]))
			w.add(i, 1)
		} else if i%2 == 1 {
			time.Sleep(time.Until(came[i].Add(-time.Duration(i%4/2) * time.Minute)))
			insert(i)
		}
	}
	time.Sleep(time.Until(came[items-1]))
	w.settle(time.Minute, allDone(items))
	slices.Sort(begun)
	return cost{float64(sent()-before) / float64(items), begun[items/2], begun[items*99/100]}
}

// It tries to break: a row that comes to many idle processes is asked for by all of them. It costs
// about as much as with one process, and is begun soon.
func TestRun_IdleProcesses_CommandsAnItem(t *testing.T) {
	for _, n := range []int{1, 5, 20, 100} {
		for _, each := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
			if each == time.Millisecond && n > 5 { // what holds at both ends is dear to see between
				continue
			}
			inBubbleSub(t, fmt.Sprint(n, " processes ", each), func(t *testing.T, w *world) {
				got := idling(t, w, Config{}, n, 600, each, 100*time.Millisecond)
				t.Logf("%.2f commands an item, begun after %v, p99 %v", got.commands, got.median, got.p99)
				if most := 2.1 + float64(n)/300; got.commands > most {
					t.Errorf("%.2f commands an item, want at most %.2f", got.commands, most)
				}
				latest := 5*time.Millisecond + 2*each + 12*each*time.Duration(min(n-1, 1))
				if got.median > latest || got.p99 > time.Second {
					t.Errorf("begun after %v, p99 %v", got.median, got.p99)
				}
			})
		}
	}
}

// It tries to break: a process whose candidates all went to others takes the queue for empty.
func TestRun_LostRace_IsNoEmptyQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const batch, lost = 10, 3
		w.add(0, 10*batch)
		p := w.start(Config{Batch: batch, Poll: time.Minute})
		races := 0
		p.gate.on(func(apply func() error) error {
			if races < lost {
				races++
				found, _, _ := w.rows.Candidates(t.Context(), 5*batch, 0, nil)
				ids := idsOf(found[:batch*races])
				assert.NoErr(t, w.rows.Mark(t.Context(), ids, rows.Claim{Slot: "other"}))
			}
			return apply()
		}, "mark")
		begun := time.Now()
		p.run(t, atOnce)
		w.settle(time.Minute, func(c Counts) bool { return c.Ready == 0 && c.Done > 0 })
		if took := time.Since(begun); took > time.Second || races < lost {
			t.Errorf("it took %v and %d races", took, races)
		}
	})
}

// It tries to break: behind a mongos, whose stream may tell ten seconds late, a row waits for it.
func TestRun_LateStream_RowsAreBegunWithinAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n, learning = 300, 150
		var mu sync.Mutex // guards latest
		var latest time.Duration
		came := make([]time.Time, n)
		for range 3 {
			p := w.start(Config{})
			p.gate.lag(10*time.Second, 10*time.Second)
			p.run(t, func(_ context.Context, row *Row[item]) error {
				mu.Lock()
				defer mu.Unlock()
				if id := row.Doc.ID; id >= learning {
					latest = max(latest, time.Since(came[id]))
				}
				return nil
			})
		}
		for i := range n {
			time.Sleep(200 * time.Millisecond)
			came[i] = time.Now()
			w.add(i, 1)
		}
		w.settle(20*time.Second, allDone(n))
		if latest > 1250*time.Millisecond {
			t.Errorf("a row was begun after %v, want within a Poll", latest)
		}
	})
}

// Rows of which the stream does not tell, since an update has made a document match the filter, are
// found all the same: late when there were none for long, and soon when there are more of them.
func TestRun_RowsThatAreNotTold_AreFound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		p.gate.late = func(event rows.Event) time.Duration {
			if event.Kind == rows.Arrived {
				return -1
			}
			return 0
		}
		p.run(t, atOnce)
		time.Sleep(time.Hour)
		if looks := p.gate.count("mark one"); looks < 30 || looks > 50 {
			t.Errorf("%d looks in an idle hour, want about one each hundred seconds", looks)
		}
		const each = 5
		for i, most := range []time.Duration{121 * time.Second, 13 * time.Second, 13 * time.Second} {
			w.add(each*i, each)
			w.settle(most, func(c Counts) bool { return c.Done == int64(each*(i+1)) })
		}
	})
}

// It tries to break: when the stream ends a process that trusted in it sleeps on.
func TestRun_StreamEnds_RowsAreFoundWithinAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{Tend: time.Hour}) // so long it opens no other one
		end := make(chan struct{})
		p.gate.ends = end
		p.run(t, atOnce)
		time.Sleep(time.Hour)
		close(end)
		synctest.Wait()
		w.add(0, 1)
		w.settle(1300*time.Millisecond, allDone(1))
	})
}

// More rows at once than a process remembers are all begun without a pause, and cost no more.
func TestRun_MoreRowsThanAreRemembered_NoPause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 5 * mostKnown
		var procs []*proc
		for range 5 {
			p := w.start(Config{Poll: time.Minute})
			p.slow(time.Millisecond)
			procs = append(procs, p)
			p.run(t, atOnce)
		}
		time.Sleep(time.Hour)
		begun, sent := time.Now(), 0
		w.add(0, n)
		w.settle(time.Minute, allDone(n))
		for _, p := range procs {
			sent += p.gate.count("mark one", "finish")
		}
		if took := time.Since(begun); took > 10*time.Second || float64(sent) > 2.1*n {
			t.Errorf("it took %v and %d commands for %d rows", took, sent, n)
		}
	})
}

// What a process adds itself it begins at once, whatever the stream tells and when.
func TestAdd_OwnRows_AreBegunAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		p.gate.lag(90*time.Millisecond, 90*time.Millisecond)
		p.run(t, atOnce)
		for i := range 20 {
			time.Sleep(time.Minute)
			assert.Must(t, p.Add(t.Context(), item{ID: i}))
			synctest.Wait()
			assert.Equal(t, w.counts(), (Counts{Done: int64(i + 1)}),
				"right after the insert: %+v, want %+v")
		}
	})
}

// It tries to break: the stream tells of rows that another queue of the collection makes ready
// again, of which it does not say whose they are. Ten a second cost about a question a Poll, and a
// row of the own queue is begun within a Poll.
func TestRun_RowsOfAnotherQueue_CostAQuestionAPoll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		begun := make(chan time.Time, 1)
		p.run(t, func(context.Context, *Row[item]) error { begun <- time.Now(); return nil })
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
