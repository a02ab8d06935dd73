package distlock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A manager imitates MongoDB's own lock manager:
//   - Its process id never changes.
//   - It writes six fields of a lock document and keeps all other fields.
//   - Its ping document has no field seq. An orderly stop deletes the ping document.
type manager struct{ w *world }

const managerID = "ConfigServer"

func (m manager) put(collection, id string, change func(bson.M)) {
	m.w.T.Helper()
	doc := bson.M{"_id": id}
	if raw := m.w.Mem.Document(collection, id); raw != nil {
		assert.Must(m.w.T, bson.Unmarshal(raw, &doc))
	}
	change(doc)
	var whole bson.D
	for key, value := range doc {
		whole = append(whole, bson.E{Key: key, Value: value})
	}
	assert.Must(m.w.T, m.w.Mem.Put(collection, whole))
}

func (m manager) take(name string) {
	m.put(catalog.LocksCollection, name, func(doc bson.M) {
		doc["state"], doc["ts"], doc["process"] = int32(2), bson.NewObjectID(), managerID
		doc["who"], doc["why"], doc["when"] = "ConfigServer:conn2", "createDatabase", time.Now()
	})
}

func (m manager) ping() {
	m.put(catalog.PingsCollection, managerID, func(doc bson.M) { doc["ping"] = time.Now() })
}

func (m manager) stop() { m.w.Mem.Remove(catalog.PingsCollection, managerID) }

// aMinute sets a takeover time of a minute. For a holder of MongoDB's lock manager, a contender
// still waits 15 minutes.
func aMinute(c *distlock.Config) { c.Takeover, c.Ping = time.Minute, 5*time.Second }

// The process calls TryLock every ten seconds. Each call must return ErrHeld.
func (p *proc) refused(name string, during time.Duration) {
	p.w.T.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Second) {
		assert.MustBe(p.w.T, assert.Err(p.Try(name)), distlock.ErrHeld)
	}
}

// A contender watches a holder of MongoDB's lock manager for ForeignTakeover before it takes the
// lock over. The contender does not write to the holder's ping.
func TestTryLock_ForeignHolderOverOurFields_OnlyWatched(t *testing.T) {
	for name, c := range map[string]struct {
		ours  bool // the document has fields of this package
		begin func(manager)
	}{
		"never pinged":             {true, func(manager) {}},
		"never pinged, never ours": {false, func(manager) {}},
		"stopped in order": {true, func(m manager) {
			m.ping()
			time.Sleep(time.Minute)
			m.stop()
		}},
		"pinged once":                   {true, func(m manager) { m.ping() }},
		"old mark, and no ping by then": {true, func(m manager) { m.ping(); m.mark() }},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, own := w.start(aMinute), manager{w}
			if c.ours {
				assert.Must(t, p.MustTry("a").Release())
			}
			own.take("a")
			c.begin(own)
			before := w.Mem.Document(catalog.PingsCollection, managerID)
			p.refused("a", 14*time.Minute)
			g, took := p.until("a", 10*time.Second, 3*time.Minute)
			if took < 50*time.Second {
				t.Errorf("taken after 14 min and %v", took)
			}
			if !strings.HasPrefix(g.TakeoverEvidence(), "rule watch:") {
				t.Errorf("taken on %q", g.TakeoverEvidence())
			}
			if now := w.Mem.Document(catalog.PingsCollection, managerID); !slices.Equal(before, now) {
				t.Errorf("its ping was written: %v", now)
			}
			// No contender condemned the manager, so it can hold the lock again under the same process id.
			assert.Must(t, g.Release())
			own.take("a")
			own.ping()
			for range 240 {
				p.refused("a", 30*time.Second)
				own.ping()
			}
		})
	}
}

// mark condemns the ping document of MongoDB's lock manager. Contenders of this version never do
// this.
func (m manager) mark() {
	m.put(catalog.PingsCollection, managerID, func(doc bson.M) {
		doc["condemned"] = bson.M{"by": "a contender", "at": time.Now(), "evidence": "no ping document"}
	})
}

// If a dead holder of this package has no ping document, a contender inserts a condemned ping
// document after the takeover time of the holder. Then a third process takes over the other locks
// of the dead holder immediately.
func TestTryLock_OurHolderWithoutPing_IsCondemned(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(aMinute), w.start(aMinute), w.start(aMinute)
		g := a.MustTry("a")
		other := a.MustTry("b")
		a.kill()
		w.Mem.Remove(catalog.PingsCollection, g.Process())
		_, took := b.until("a", 5*time.Second, 15*time.Minute)
		if took < time.Minute || took > 80*time.Second {
			t.Errorf("taken after %v, want a minute", took)
		}
		p, bad := catalog.ParsePing(w.Mem.Document(catalog.PingsCollection, g.Process()))
		if bad != nil || p.Condemned == nil || p.Condemned.By != b.Process() || p.At.IsZero() {
			t.Errorf("its ping is %+v, %v", p, bad)
		}
		assert.NoErr(t, assert.Err(c.Try(other.Name())), "the other contender")
	})
}

// Before a contender takes over a lock of MongoDB's lock manager, it reads the lock two more times.
// If a read shows a change, the contender does not take the lock over.
func TestTryLock_ForeignHolderWithoutPing_LooksOnceMore(t *testing.T) { // R5
	for name, c := range map[string]struct {
		before fault.Op // the step that the change precedes
		change func(manager)
	}{
		"pings before the second read":      {fault.Hello, manager.ping},
		"takes anew before the second read": {fault.Hello, func(m manager) { m.take("a") }},
		"takes anew before the last read":   {fault.Read, func(m manager) { m.take("a") }},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, own := w.start(aMinute), manager{w}
			own.take("a")
			p.refused("a", 14*time.Minute+50*time.Second)
			var looked time.Time
			changed := false
			var mu sync.Mutex // needed because the background reads as well
			p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case call.Op == fault.Look:
					looked = time.Now()
				case call.Op == c.before && time.Now().Equal(looked) && !changed:
					changed = true
					c.change(own)
				}
				return apply()
			})
			p.refused("a", 10*time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if !changed {
				t.Errorf("no %s after the first read", c.before)
			}
		})
	}
}

// If a waiter has no ping document, other processes evict it after the takeover time that is stored
// in its queue entry.
func TestLock_WaiterWithoutPing_IsOurs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(aMinute), w.start(aMinute), w.start(aMinute)
		g := a.MustTry("a")
		go func() { _, _ = b.Lock("a").Lock(t.Context()) }() // ends with the test
		time.Sleep(time.Second)
		dead := b.Process()
		b.kill()
		w.Mem.Remove(catalog.PingsCollection, dead)
		time.Sleep(time.Second)
		got := make(chan error, 1)
		go func() {
			_, err := c.Lock("a").Lock(t.Context(), distlock.WaitAtMost(10*time.Minute))
			got <- err
		}()
		time.Sleep(3 * time.Minute)
		if waiters := w.Lock("a").Waiters; len(waiters) != 1 || waiters[0].Process != c.Process() {
			t.Errorf("waiters: %+v", waiters)
		}
		assert.NoErr(t, g.Release())
		assert.NoErr(t, <-got)
	})
}
