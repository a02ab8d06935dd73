package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// chained makes rows with one key a chain, whose field is "event".
func (w *world) chained(letGo bool) Config {
	w.rows.Keyed("event", letGo)
	return Config{Key: "event", KeyLetsGo: letGo}
}

// addKeys adds a row for each key, with the numbers from first on.
func (w *world) addKeys(first int, keys ...any) {
	w.t.Helper()
	docs := make([]any, len(keys))
	for i, key := range keys {
		docs[i] = bson.D{{Key: "_id", Value: first + i}, {Key: "event", Value: key}}
	}
	assert.Must(w.t, w.rows.Insert(w.t.Context(), docs))
}

// A line judges the order of rows that are worked on.
type line struct {
	w     *world
	chain map[string][]bson.RawValue // rows by key, in order

	mu      sync.Mutex // guards the rest
	working map[string]map[*Row[item]]*host
	bad     []string
}

func (w *world) line() *line {
	l := &line{w: w, chain: map[string][]bson.RawValue{}, working: map[string]map[*Row[item]]*host{}}
	for _, row := range w.rows.All() {
		key, _ := rows.KeyOf(row.Doc, "event")
		l.chain[rows.KeyText(key)] = append(l.chain[rows.KeyText(key)], row.ID)
	}
	for _, chain := range l.chain {
		slices.SortFunc(chain, func(a, b bson.RawValue) int { return int(a.AsInt64() - b.AsInt64()) })
	}
	return l
}

// work is what a handler does: it tells when it begins beside another row of its key, or before one
// that was to be done before.
func (l *line) work(row *Row[item], h *host, do func() error) error {
	key, _ := rows.KeyOf(row.Raw(), "event")
	k, id := rows.KeyText(key), row.Doc.ID
	l.mu.Lock()
	for other, of := range l.working[k] {
		if other.Err() == nil && (of == nil || !of.isDead()) {
			l.bad = append(l.bad, fmt.Sprintf("rows %d and %d of %s at work at once", other.Doc.ID, id, key))
		}
	}
	if l.working[k] == nil {
		l.working[k] = map[*Row[item]]*host{}
	}
	l.working[k][row] = h
	isRow := func(one bson.RawValue) bool { return int(one.AsInt64()) == id }
	before := slices.IndexFunc(l.chain[k], isRow)
	found, _ := l.w.rows.Current(context.Background(), l.chain[k][:max(before, 0)])
	for _, one := range found {
		if s := one.Mark.State; s != rows.Done && s != rows.Dead {
			l.bad = append(l.bad, fmt.Sprintf("row %d of %s begins, and row %v is %s", id, key, one.ID, s))
		}
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.working[k], row)
	}()
	return do()
}

// of is a handler whose work the line judges.
func (l *line) of(do func(row *Row[item]) error) handler {
	return func(_ context.Context, row *Row[item]) error {
		return l.work(row, nil, func() error { return do(row) })
	}
}

func (l *line) want(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, bad := range l.bad[:min(len(l.bad), 5)] {
		t.Error(bad)
	}
}

// keysOf are n rows for each of some keys, one key after the other or all keys in turn.
func keysOf(keys, n int, inTurn bool) (list []any) {
	for i := range keys * n {
		if inTurn {
			list = append(list, i%keys)
		} else {
			list = append(list, i/n)
		}
	}
	return list
}

// 500 keys of 8 rows, two processes that race for them, handlers that fail now and then: rows of
// one key are worked on one after the other, in order, and each costs one command more.
func TestChains_500Keys_InOrder(t *testing.T) {
	const each = 8 // rows
	for name, inTurn := range map[string]bool{"in turn": true, "one after the other": false} {
		for _, batch := range []int{1, 20} {
			inBubbleSub(t, fmt.Sprint(name, batch), func(t *testing.T, w *world) {
				cfg := w.chained(false)
				cfg.Workers, cfg.Batch = 10, batch
				w.addKeys(0, keysOf(500, each, inTurn)...)
				l := w.line()
				var procs []*proc
				for range 2 {
					p := w.start(cfg)
					procs = append(procs, p)
					p.run(t, l.of(func(row *Row[item]) error {
						time.Sleep(rand.N(200 * time.Millisecond))
						if row.Doc.ID%50 == 0 && row.Attempt() == 1 {
							return errors.New("not yet")
						}
						return nil
					}))
				}
				w.settle(30*time.Minute, allDone(500*each))
				l.want(t)
				n := 0
				for _, p := range procs {
					n += p.gate.sent()
				}
				t.Logf("%.2f commands an item", float64(n)/(500*each))
				if most := 3.2; float64(n) > most*500*each {
					t.Errorf("%d commands for %d items, want at most %v each", n, 500*each, most)
				}
			})
		}
	}
}

// A key whose first row fails for an hour waits for it, and the others do not; with KeyLetsGo it
// does not wait either.
func TestChains_FirstRowFails_OthersGoOn(t *testing.T) {
	for _, letGo := range []bool{false, true} {
		inBubbleSub(t, fmt.Sprint("lets go ", letGo), func(t *testing.T, w *world) {
			cfg := w.chained(letGo)
			cfg.Backoff, cfg.BackoffMax, cfg.MaxAttempts = time.Minute, time.Minute, 1000
			w.addKeys(0, keysOf(20, 5, true)...)
			begun := time.Now()
			l := w.line()
			if letGo {
				l.chain = nil
			}
			w.start(cfg).run(t, l.of(func(row *Row[item]) error {
				if row.Doc.ID == 0 && time.Since(begun) < time.Hour {
					return errors.New("not yet")
				}
				return nil
			}))
			want := Counts{Done: 95, Retrying: 1, Ready: 4}
			if letGo {
				want = Counts{Done: 99, Retrying: 1}
			}
			w.settle(20*time.Second, func(c Counts) bool { return c == want })
			w.settle(2*time.Hour, allDone(100))
			l.want(t)
		})
	}
}

// A row that is dead lets its key go, whether it failed or its processes died.
func TestChains_DeadRow_LetsItsKeyGo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.chained(false)
		cfg.MaxAttempts = 1
		w.addKeys(0, "x", "x", "x")
		l := w.line()
		w.start(cfg).run(t, l.of(func(row *Row[item]) error {
			if row.Doc.ID == 0 {
				return errors.New("never")
			}
			return nil
		}))
		w.settle(time.Minute, are(Counts{Done: 2, Dead: 1}))
		l.want(t)
	})
}

// It tries to break: a hot key whose 5,000 rows are before all others. They stop nobody.
func TestChains_HotKey_OthersGoOn(t *testing.T) {
	for _, batch := range []int{1, 10} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			cfg := w.chained(false)
			cfg.Workers, cfg.Batch = 4, batch
			hot := make([]any, 5000)
			for i := range hot {
				hot[i] = "hot"
			}
			w.addKeys(0, hot...)
			w.addKeys(10_000, keysOf(100, 2, true)...)
			p := w.start(cfg)
			l := w.line()
			var others atomic.Int64
			p.run(t, l.of(func(row *Row[item]) error {
				time.Sleep(time.Second)
				if row.Doc.ID >= 10_000 {
					others.Add(1)
				}
				return nil
			}))
			time.Sleep(75 * time.Second)               // 200 rows of a second by three workers
			least := map[int]int{1: 60, 10: 20}[batch] // in batches its rows wait for a worker, too
			n := int(others.Load())
			if hot := int(w.counts().Done) - n; n != 200 || hot < least || hot > 80 {
				t.Errorf("%d others of 200 are done, and %d of the hot key in 75 s", n, hot)
			}
			l.want(t)
			if n, done := p.gate.sent(), w.counts().Done; n > 4*int(done) {
				t.Errorf("%d commands for %d items", n, done)
			}
		})
	}
}

// It tries to break: a row that is to come before the one that was begun already, because it is due
// before it, does not stop that one, nor its key, nor others.
func TestChains_EarlierRowComesLater_TheBegunOneGoesFirst(t *testing.T) {
	for _, batch := range []int{1, 5} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			w.rows.Due("at")
			cfg := w.chained(false)
			cfg.Due, cfg.Batch, cfg.Backoff = "at", batch, time.Minute
			base := time.Now()
			add := func(id int, key string, at time.Duration) {
				doc := bson.M{"_id": id, "event": key, "at": base.Add(at)}
				assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
			}
			add(1, "x", -time.Minute)
			add(2, "x", -time.Second)
			p := w.start(cfg)
			var begun []int
			p.run(t, func(_ context.Context, row *Row[item]) error {
				begun = append(begun, row.Doc.ID)
				if row.Attempt() == 1 && row.Doc.ID == 1 {
					return errors.New("once more")
				}
				return nil
			})
			w.settle(10*time.Second, func(c Counts) bool { return c.Retrying == 1 })
			add(0, "x", -time.Hour)
			add(3, "y", 0)
			w.settle(10*time.Second, func(c Counts) bool { return c.Done == 1 })
			w.settle(3*time.Minute, allDone(4))
			if want := []int{1, 3, 1, 0, 2}; !slices.Equal(begun, want) {
				t.Errorf("rows were begun in the order %v, want %v", begun, want)
			}
		})
	}
}

// A chain of rows that take no time is done without waiting for a look, by the process that has it
// and by one that only hears of it; also where no stream tells.
func TestChains_NextRow_AtOnce(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubbleSub(t, fmt.Sprint("deaf ", deaf), func(t *testing.T, w *world) {
			cfg := w.chained(false)
			cfg.Poll = time.Minute
			w.addKeys(0, keysOf(2, 30, false)...)
			begun := time.Now()
			for range 2 {
				p := w.start(cfg)
				p.gate.deaf = deaf
				p.run(t, func(context.Context, *Row[item]) error { time.Sleep(time.Second); return nil })
			}
			w.settle(2*time.Hour, allDone(60))
			if took := time.Since(begun); took > 90*time.Second {
				t.Errorf("60 rows of a second took %v", took)
			}
		})
	}
}

// One row now and then, of keys that nobody has: three commands each, idle looks aside.
func TestChains_RowsNowAndThen_ThreeCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.chained(false)
		cfg.Poll = time.Hour
		p := w.start(cfg)
		p.run(t, func(context.Context, *Row[item]) error { time.Sleep(time.Second); return nil })
		time.Sleep(time.Minute)
		asked := func() int { return p.gate.sent() - p.gate.count("current") }
		before := asked()
		for i := range 100 {
			w.addKeys(i, i)
			time.Sleep(10 * time.Second)
		}
		w.settle(time.Hour, allDone(100))
		if n := asked() - before; n > 310 {
			t.Errorf("%d commands for 100 rows", n)
		}
	})
}

// A Key that makes no sense is said with its name.
func TestConfig_Key(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Key: "claim"}, {Key: "claim.x"}, {Key: "a..b"}, {Key: "$a"}, {Key: "_id"}, {KeyLetsGo: true},
	} {
		if list := cfg.withDefaults().problems(); len(list) != 1 {
			t.Errorf("%+v: %v", cfg, list)
		}
	}
	good := Config{Key: "of.event_id", KeyLetsGo: true, Due: "at"}
	if list := good.withDefaults().problems(); list != nil {
		t.Error(list)
	}
}

// It tries to break: a row of a chain begins while the handler of the one before it, which was
// cancelled, still runs.
func TestChains_Cancelled_TheNextWaitsForItsHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.chained(false)
		w.addKeys(0, "a", "a")
		p, other := w.start(cfg), w.start(cfg)
		var ended time.Time
		for _, one := range []*proc{p, other} {
			one.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID == 1 {
					if ended.IsZero() {
						t.Error("it begins beside a cancelled one")
					}
					return nil
				}
				<-ctx.Done()
				time.Sleep(time.Minute) // it does not mind
				ended = time.Now()
				return nil
			})
		}
		w.settle(time.Minute, func(c Counts) bool { return c.Claimed == 1 })
		assert.Must(t, p.Cancel(t.Context(), 0))
		w.settle(time.Hour, are(Counts{Dead: 1, Done: 1}))
	})
}

// It tries to break: a row whose key is held is asked for although it is known, again and again.
func TestChains_HeldKey_IsLeftOutOfTheQuestion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.chained(false)
		w.addKeys(0, "a", "a", "b")
		a, b := w.start(cfg), w.start(cfg)
		if held := a.take(t, 1); len(held) != 1 || held[0].Doc.ID != 0 {
			t.Fatal(held)
		}
		got, asked := b.take(t, 1), b.gate.count("mark one")
		if len(got) != 1 || got[0].Doc.ID != 2 || asked != 1 {
			t.Errorf("%d rows by %d questions, want that of the other key by one", len(got), asked)
		}
	})
}

// A document whose key is a list would never be given: it is refused with the field's name, and so
// are all that come with it. One that another program has written is told of, once.
func TestChains_ListAsKey_IsRefusedAndToldOf(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows.Keyed("of.event", false)
		cfg := Config{Key: "of.event"}.withDefaults()
		q := onStore[bson.M](t.Context(), w.start(Config{}).m, w.rows, "db.rows", cfg)
		good := bson.M{"_id": 1, "of": bson.M{"event": 1}}
		for field, bad := range map[string]bson.M{
			`"of.event"`: {"_id": 2, "of": bson.M{"event": bson.A{1}}},
			`"of"`:       {"_id": 2, "of": bson.A{bson.M{"event": 1}}},
		} {
			_, err := q.Insert(t.Context(), "key", bad)
			for _, err := range []error{err, q.Add(t.Context(), good, bad)} {
				if err == nil || !strings.Contains(err.Error(), "field "+field) {
					t.Errorf("%v: %v", bad, err)
				}
			}
		}
		assert.Equal(t, w.counts(), (Counts{}), "%+v were inserted, want %+v")
		w.chained(false)
		w.addKeys(0, bson.A{"x", "y"}, "x")
		p := w.start(Config{Key: "event"})
		p.run(t, atOnce)
		w.settle(time.Minute, are(Counts{Done: 1, Ready: 1}))
		time.Sleep(takeoverTime)
		if n := w.logs.with("not understood", `\"event\" is a list`); n != 1 {
			t.Errorf("told of %d times, want once", n)
		}
	})
}
