package waitqueue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/waitqueue"
)

// Tries to break: whoever gives way to most is told, nobody without whom the others do, and who
// gives up in the middle of a line lets nobody in behind him.
func TestDeadlock_WhoGivesUp(t *testing.T) {
	t.Parallel()
	const x, s = catalog.Exclusive, catalog.Shared
	for name, c := range map[string]struct {
		locks map[string]*playLock
		holds map[int][]int
		told  []int
	}{
		"a writer who waits for readers who wait for it": {
			locks: map[string]*playLock{
				"hub":    {holders: []playParty{{1, x}}, line: []playParty{{12, x}, {13, x}, {14, x}}},
				"shared": {holders: []playParty{{2, s}, {3, s}, {4, s}}, line: []playParty{{11, x}}},
			},
			holds: map[int][]int{11: {1}, 12: {2}, 13: {3}, 14: {4}},
			told:  []int{11},
		},
		"three who wait for one, and a way around it": { // 21 gives way to most, 31 breaks both circles
			locks: map[string]*playLock{
				"x": {holders: []playParty{{1, x}}, line: []playParty{{11, x}, {12, x}, {13, x}}},
				"p": {holders: []playParty{{2, x}}, line: []playParty{{21, x}, {22, x}}},
				"a": {holders: []playParty{{3, x}}, line: []playParty{{31, x}}},
				"b": {holders: []playParty{{4, x}}, line: []playParty{{41, x}}},
			},
			holds: map[int][]int{11: {3}, 12: {3}, 13: {3}, 21: {1}, 22: {4}, 31: {2}, 41: {3}},
			told:  []int{31},
		},
		// 13 and 14 hold up what 1 waits for; without 13 the reader 14 stands behind 11.
		"in the middle of a line": {
			locks: map[string]*playLock{
				"a": {holders: []playParty{{1, s}}, line: []playParty{{11, x}, {12, s}, {13, x}, {14, s}}},
				"b": {holders: []playParty{{2, x}},
					line: []playParty{{21, x}, {22, x}, {23, x}, {24, x}, {25, x}}},
			},
			holds: map[int][]int{11: {}, 12: {}, 13: {2}, 14: {1}, 21: {1}, 22: {1}, 23: {1}, 24: {1},
				25: {1}},
			told: []int{13, 14},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &play{locks: c.locks, holds: c.holds}
			if told := p.told(100, nil); !slices.Equal(told, c.told) {
				t.Errorf("%v are told, want %v", told, c.told)
			}
		})
	}
}

// BenchmarkSearch is one search for all waiters of a process: what it costs the processor, store in
// memory included. Each of n callers holds a lock and waits for another: for that of a process that
// goes on, for the next of its own, or all of them for one another.
func BenchmarkSearch(b *testing.B) {
	for name, c := range map[string]struct {
		n     int
		shape func(i, n int) []int // for whose locks caller i waits; -1 for a lock of another process
	}{
		"8000 callers, no circle": {8_000, func(int, int) []int { return []int{-1} }},
		"10000 waiters, no circle": {10_000,
			func(i, n int) []int { return []int{i + 1}[min(1, max(0, i-n+2)):] }},
		"400 waiters, all with all": {20, others},
		"10000 waiters in pairs":    {10_000, func(i, _ int) []int { return []int{i ^ 1} }},
	} {
		b.Run(name, func(b *testing.B) {
			q := crowded(b, c.n, c.shape)
			told := 0
			b.ReportAllocs()
			for b.Loop() {
				told = waitqueue.Search(q)
			}
			b.ReportMetric(float64(told), "told")
		})
	}
}

func others(i, n int) (list []int) {
	for j := range n {
		if j != i {
			list = append(list, j)
		}
	}
	return list
}

// crowded is the queue of a process with n callers, in a store in memory.
func crowded(tb testing.TB, n int, waitsFor func(i, n int) []int) *waitqueue.Queue {
	tb.Helper()
	store, ctx := memcatalog.New(memcatalog.Options{}), tb.Context()
	for _, p := range []string{"p", "other"} {
		if _, err := store.Ping(ctx,
			catalog.Heartbeat{Process: p, Seq: 1, Takeover: time.Hour, Interval: time.Hour}); err != nil {
			tb.Fatal(err)
		}
	}
	closed, loops := make(chan struct{}), sync.WaitGroup{}
	tb.Cleanup(func() { close(closed); loops.Wait() })
	q := waitqueue.New(waitqueue.Config{
		Store: store, Process: process{}, Clock: clock.System(), Ping: time.Hour, Poll: time.Hour,
		PollMax:     time.Hour,
		MaxWatchGap: time.Hour, Closed: closed, Go: func(func()) {},
	})
	enter := func(name, process string, holds ...bson.ObjectID) bson.ObjectID {
		r := catalog.Request{
			Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Process: process, Who: process,
			Holds: holds,
		}
		lock := assert.Value(catalogtest.On(store).Enter(ctx, r, catalog.Queue))(tb)
		if _, waits := lock.WaitedBy(r.TS); waits {
			q.Stands(q.Enter(r, waitqueue.InLine, 0), lock)
		}
		return r.TS
	}
	own := make([]bson.ObjectID, n)
	for i := range own {
		own[i] = enter(fmt.Sprintf("own %05d", i), "p")
	}
	for i, ts := range own {
		for _, j := range waitsFor(i, n) {
			name := fmt.Sprintf("own %05d", j)
			if j < 0 {
				name = fmt.Sprintf("other %05d", i)
				enter(name, "other")
			}
			enter(name, "p", ts)
		}
	}
	return q
}
