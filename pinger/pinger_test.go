package pinger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
	"mongodlm/pinger"
)

func TestMain(m *testing.M) { effort.Main(m) }

const (
	interval = 30 * time.Second
	takeover = 15 * time.Minute
	margin   = takeover / 4
	hold     = takeover - margin
)

// owner is an Owner with sessions that the test sets.
type owner struct {
	mu       sync.Mutex // guards the fields
	terms    []*pinger.Term
	guarded  []catalog.Session
	attempts map[bson.ObjectID]bool
	vanished []catalog.Session
	store    catalog.Catalog
}

func (o *owner) ReleaseInStore(ctx context.Context, s catalog.Session) error {
	_, err := catalogtest.On(o.store).Leave(ctx, s)
	return err
}

func (o *owner) TermBegan(t *pinger.Term) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.terms = append(o.terms, t)
}

func (o *owner) Owns(ts bson.ObjectID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.attempts[ts] ||
		slices.ContainsFunc(o.guarded, func(s catalog.Session) bool { return s.TS == ts })
}

func (o *owner) Sweep(*pinger.Term) (guarded []catalog.Session, swept func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.guarded), func() {}
}

func (o *owner) Vanished(_ context.Context, s catalog.Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vanished = append(o.vanished, s)
}

type bundle struct {
	mem   *memcatalog.Catalog
	store *fault.Catalog
	owner *owner
	p     *pinger.LockPinger
	skew  *atomic.Int64 // of the server's clock
}

// setup returns a pinger with a store in memory. The pinger is not started.
func setup(t *testing.T, change func(*pinger.Config)) *bundle {
	t.Helper()
	return setupBy(t, clock.System(), change)
}

func setupBy(t *testing.T, by clock.Clock, change func(*pinger.Config)) *bundle {
	t.Helper()
	skew := new(atomic.Int64)
	now := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	b := &bundle{mem: memcatalog.New(memcatalog.Options{Now: now}), owner: &owner{}, skew: skew}
	b.store = fault.Wrap(b.mem)
	b.owner.store = b.store
	n := 0
	cfg := pinger.Config{
		Store: b.store, Owner: b.owner,
		NewProcess: func() (string, error) { n++; return fmt.Sprintf("process-%d", n), nil },
		Interval:   interval, Takeover: takeover, Margin: margin, Logger: zerolog.Nop(),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.p, err = pinger.New(clock.With(t.Context(), by), cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// inBubble runs a test with a pinger in virtual time.
func inBubble(t *testing.T, change func(*pinger.Config), test func(t *testing.T, b *bundle)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, setup(t, change)) })
}

// whileItPings is inBubble with a running pinger.
func whileItPings(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.start(t)
		defer b.close(t)
		test(t, b)
	})
}

func (b *bundle) start(t *testing.T) {
	t.Helper()
	assert.Must(t, b.p.Start(t.Context()))
}

func (b *bundle) close(t *testing.T) {
	t.Helper()
	assert.NoErr(t, b.p.Close(context.Background()), "close")
}

// If the first ping is refused or its reply is lost, Start fails and no term begins. Start may be
// repeated.
func TestLockPinger_FirstPingNotAcknowledged_NothingBegins(t *testing.T) { // H12
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		for _, lost := range []bool{false, true} {
			b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if lost {
					return errors.Join(apply(), fault.Lost(call.Op))
				}
				return fault.Refused(call.Op)
			})
			if err := b.p.Start(t.Context()); err == nil || b.p.Term() != nil {
				t.Errorf("lost %v: %v, term %v", lost, err, b.p.Term())
			}
		}
		b.store.Set(nil)
		b.start(t)
		defer b.close(t)
		if b.p.Term() == nil || b.mem.Document(catalog.PingsCollection, b.p.Process()) == nil {
			t.Error("it has begun without a ping in the store")
		}
	})
}

// A process pings once per interval, and each ping extends its term.
func TestLockPinger_Pings_OncePerInterval(t *testing.T) {
	whileItPings(t, func(t *testing.T, b *bundle) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := b.store.Count(fault.Ping); n < 110 || n > 134 {
			t.Errorf("pings in an hour: %d, want 120 give or take a tenth", n)
		}
		assert.NoErr(t, b.p.Last().Err(), "term is over")
		assert.Equal(t, len(b.owner.terms), 1, "%d terms, want %d")
	})
}

// The deadline counts from the send of the acknowledged ping, even if the reply is late.
func TestTerm_SlowReply_DeadlineCountsFromSend(t *testing.T) { // R3
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *pinger.Config) { c.Limit = time.Hour })
		b.store.Set(fault.Slow(0, 4*time.Minute, fault.Ping))
		sent := time.Now()
		assert.Must(t, b.p.Ping(t.Context()))
		if got, want := b.p.Last().Deadline(), sent.Add(hold); !got.Equal(want) {
			t.Errorf("deadline %v, want %v", got, want)
		}
		if got, want := b.p.Last().Left(), hold-4*time.Minute; got != want {
			t.Errorf("left %v, want %v", got, want)
		}
	})
}

// A ping whose reply comes after the deadline begins a new term. It does not revive the old one.
func TestTerm_ReplyAfterDeadline_DoesNotRevive(t *testing.T) { // B4, R4
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *pinger.Config) { c.Limit = time.Hour })
		assert.Must(t, b.p.Ping(t.Context()))
		first := b.p.Last()
		b.store.Set(fault.Slow(0, hold+time.Second, fault.Ping))
		assert.Must(t, b.p.Ping(t.Context()))
		assert.Is(t, first.Err(), pinger.ErrLapsed)
		if b.p.Last() == first {
			t.Error("the first term was revived")
		}
	})
}

// A term ends after the hold time without an acknowledged ping, even if no timer has fired yet. It
// stays over when the server is available again.
func TestTerm_NoAcknowledgement_EndsAtHoldTime(t *testing.T) { // D2, A10
	whileItPings(t, func(t *testing.T, b *bundle) {
		term := b.p.Last()
		b.store.Set(fault.Refusing(fault.Ping))
		left := term.Left()
		time.Sleep(left - time.Nanosecond)
		assert.Must(t, term.Err(), "over before the hold time")
		time.Sleep(time.Nanosecond)
		assert.MustBe(t, term.Err(), pinger.ErrLapsed)
		if b.p.Term() != nil {
			t.Error("there is a current term without an acknowledged ping")
		}
		b.store.Set(nil)
		time.Sleep(2 * interval)
		if term.Err() == nil || b.p.Term() == nil || b.p.Term() == term {
			t.Error("want the old term over and a new one begun")
		}
	})
}

// If a ping finds that another writer has changed the ping document, the process gives up its id
// and takes a new one. If the document was removed, the process also removes the document that its
// ping creates.
func TestLockPinger_DocumentNotAsLeft_ProcessOver(t *testing.T) { // A12, F12, F17, H2
	t.Parallel()
	put := func(fields ...bson.E) func(b *bundle) {
		return func(b *bundle) {
			doc := bson.D{{Key: "_id", Value: "process-1"}, {Key: "ping", Value: time.Now()}}
			_ = b.mem.Put(catalog.PingsCollection, append(doc, fields...))
		}
	}
	for name, harm := range map[string]func(b *bundle){
		"a twin pinged": func(b *bundle) { b.twin(t, 4) },
		"seq is gone":   put(),
		"removed":       func(b *bundle) { b.mem.Remove(catalog.PingsCollection, "process-1") },
		"seq is a text": put(bson.E{Key: "seq", Value: "x"}),
		"seq jumped":    put(bson.E{Key: "seq", Value: int64(1000)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			for range 3 {
				assert.Must(t, b.p.Ping(t.Context()))
			}
			first := b.p.Last()
			harm(b)
			assert.Must(t, b.p.Ping(t.Context()))
			assert.Is(t, first.Err(), pinger.ErrForked)
			assert.Equal(t, b.p.Last().Process(), "process-2", "process %q, want %v")
			if name != "removed" {
				return
			}
			if errors.Is(first.Err(), catalog.ErrTwin) {
				t.Errorf("first term: %v, want no twin", first.Err())
			}
			if raw := b.mem.Document(catalog.PingsCollection, "process-1"); raw != nil {
				t.Errorf("the old document is back: %v", raw)
			}
		})
	}
}

// A condemned process takes a new id at its next ping.
func TestLockPinger_Condemned_ProcessOver(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	assert.Must(t, b.p.Ping(t.Context()))
	first := b.p.Last()
	seen := catalog.Ping{Process: "process-1", Seq: 1, HasSeq: true}
	why := catalog.Condemnation{By: "other", Evidence: "silent"}
	assert.Must(t, catalogtest.On(b.mem).Condemn(t.Context(), "process-1", &seen, why))
	assert.Must(t, b.p.Ping(t.Context()))
	var by *catalog.CondemnedError
	if err := first.Err(); !errors.Is(err, pinger.ErrCondemned) || !errors.As(err, &by) ||
		by.Condemnation.By != "other" {
		t.Errorf("first term: %v, want ErrCondemned by other", err)
	}
	if b.mem.Document(catalog.PingsCollection, "process-1") == nil {
		t.Error("the condemned document must stay, so that a late ping cannot revive the process")
	}
}

// A panic in one ping is logged, and the next ping follows. In mongos a panic ended the ping
// thread.
func TestLockPinger_PanicInOneTick_NextTickComes(t *testing.T) { // H16
	whileItPings(t, func(t *testing.T, b *bundle) {
		var panics atomic.Int32 // in chores and in pings
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if panics.Add(1) <= 3 {
				panic("on purpose in " + string(call.Op))
			}
			return apply()
		})
		time.Sleep(10 * interval)
		synctest.Wait()
		assert.Equal(t, b.p.Stats().Panics, 3, "recovered %d panics, want %d")
		if b.p.Last().Err() != nil || b.p.Stats().Pings < 5 {
			t.Errorf("pinging did not go on: %v, %d pings", b.p.Last().Err(), b.p.Stats().Pings)
		}
	})
}

// The pinger measures the delay of its own loop, for example after a pause of the process.
func TestLockPinger_LateLoop_IsMeasured(t *testing.T) { // B8
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &lateClock{Clock: clock.System()}
		b := setupBy(t, late, nil)
		b.start(t)
		defer b.close(t)
		synctest.Wait() // the ping loop sleeps now
		late.by(2 * time.Minute)
		time.Sleep(3 * interval)
		synctest.Wait()
		if got := b.p.Stats().MaxLateness; got < 90*time.Second {
			t.Errorf("lateness %v, want about 2 minutes", got)
		}
	})
}

// lateClock is the clock of a machine that was stopped. While the machine was stopped, the
// monotonic clock continued and the timers did not.
type lateClock struct {
	clock.Clock
	mu    sync.Mutex
	extra time.Duration
}

func (c *lateClock) by(d time.Duration) { c.mu.Lock(); c.extra += d; c.mu.Unlock() }

func (c *lateClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	return clock.Reading{Wall: now.Wall.Add(c.extra), Mono: now.Mono + c.extra}
}
