package singleton_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/locktest"
	"mongodlm/singleton"
)

const takeoverTime = locktest.TakeoverTime

// A world is one server and its processes, in virtual time.
type world struct {
	*locktest.World
	t       *testing.T
	store   *singleton.MemoryStore
	started time.Time
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) {
		test(t, &world{w, t, singleton.NewMemoryStore(nil), time.Now()})
	})
}

func inBubbleSub(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

type work = func(context.Context, *distlock.TryGuard) error

func nothing(context.Context, *distlock.TryGuard) error { return nil }

func looping(every time.Duration, do work) singleton.Loop {
	return singleton.Loop{Name: "a", Every: every, Do: do}
}

func slotting(every time.Duration, do func(context.Context, singleton.Slot) error) singleton.Slots {
	return singleton.Slots{Name: "a", Schedule: singleton.Every(every), Do: do}
}

func each(t *testing.T, name string, test func(t *testing.T, w *world, kind singleton.Kind)) {
	for _, kind := range []singleton.Kind{singleton.KindLoop, singleton.KindSlots} {
		inBubbleSub(t, string(kind)+" "+name, func(t *testing.T, w *world) { test(t, w, kind) })
	}
}

func (p *process) runs(kind singleton.Kind, every time.Duration, do work) <-chan error {
	l := looping(every, do)
	s := slotting(every, func(ctx context.Context, s singleton.Slot) error { return do(ctx, s.Guard) })
	l.Store, s.Store = p.store, p.store
	ended := make(chan error, 1)
	p.ended.Go(func() {
		if kind == singleton.KindLoop {
			ended <- singleton.Run(p.ctx, p.Manager, l)
		} else {
			ended <- singleton.RunSlots(p.ctx, p.Manager, s)
		}
	})
	return ended
}

// A process is a Manager with its connections to the server, and its loops and schedules.
type process struct {
	*distlock.Manager
	w     *world
	locks *locktest.Proc
	store *connection
	ended sync.WaitGroup
	stop  context.CancelFunc
	ctx   context.Context
}

// steps replaces the store's clock by a clock that deviates from the real time. The test sets the
// deviation, in nanoseconds.
func (w *world) steps() *atomic.Int64 {
	var by atomic.Int64
	w.store = singleton.NewMemoryStore(func() time.Time {
		return time.Now().Add(time.Duration(by.Load()))
	})
	return &by
}

// start starts a process whose wall clock is ahead by the given duration.
func (w *world) start(skew time.Duration) *process {
	w.t.Helper()
	return w.startWith(skew, nil)
}

func (w *world) startWith(skew time.Duration, change func(*distlock.Config)) *process {
	w.t.Helper()
	c := locktest.WrongClock(skew)
	locks := w.StartBy(c, change)
	p := &process{Manager: locks.Manager, w: w, locks: locks, store: &connection{Store: w.store}}
	p.ctx, p.stop = context.WithCancel(clock.With(context.Background(), c))
	w.t.Cleanup(func() {
		p.locks.Heal()
		p.store.Set(nil)
		p.stop()
		p.ended.Wait()
	})
	return p
}

// kill cuts a process off from the server permanently. Other processes cannot distinguish this from
// its death.
func (p *process) kill() {
	p.locks.Kill()
	p.store.Set(silent)
}

func silent(context.Context, string, func() error) error {
	return errors.New("no answer on purpose")
}

// lose drops the replies to n commands. The parameter first is the number of earlier commands whose
// replies still arrive. If applied is true, the store applies the n commands.
func (y *connection) lose(first, n int, applied bool) {
	sent := 0
	y.Set(func(ctx context.Context, command string, apply func() error) error {
		if sent++; sent <= first || sent > first+n {
			return apply()
		}
		if applied {
			_ = apply()
		}
		return silent(ctx, command, apply)
	})
}

// A connection is a process's connection to the store.
type connection struct {
	singleton.Store
	fault.Gate
}

func (y *connection) Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	return fault.Pass(ctx, &y.Gate, "settings", func() (map[string]bson.Raw, error) {
		return y.Store.Settings(ctx, names...)
	})
}

func (y *connection) Change(ctx context.Context, c singleton.Change) (bson.Raw, error) {
	return fault.Pass(ctx, &y.Gate, "change", func() (bson.Raw, error) {
		return y.Store.Change(context.WithoutCancel(ctx), c)
	})
}

func (p *process) loop(l singleton.Loop) {
	l.Store = p.store
	p.ended.Go(func() {
		assert.NoErr(p.w.t, singleton.Run(p.ctx, p.Manager, l), "Run")
	})
}

func (p *process) slots(s singleton.Slots) {
	s.Store = p.store
	p.ended.Go(func() {
		assert.NoErr(p.w.t, singleton.RunSlots(p.ctx, p.Manager, s), "RunSlots")
	})
}

func (w *world) settings(name string, fields ...bson.E) {
	w.t.Helper()
	doc := append(bson.D{e("_id", name)}, fields...)
	assert.Must(w.t, w.store.Put(singleton.SettingsCollection, doc))
}

func (w *world) status() singleton.Status {
	w.t.Helper()
	list, err := singleton.List(w.t.Context(), w.store)
	if err != nil || len(list) != 1 || list[0].Err != nil {
		w.t.Fatalf("List: %+v, %v", list, err)
	}
	return list[0]
}

// A journal contains the rounds of a loop, or the slots of a schedule, in the order in which they
// began.
type journal struct {
	mu      sync.Mutex // guards the field entries
	entries []entry
}

type entry struct {
	slot    singleton.Slot // of a round, only the field Guard is set
	at      time.Time
	process string
	fence   int64
}

func (j *journal) note(s singleton.Slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{s, time.Now(), s.Guard.Process(), s.Guard.Fence()})
}

// round is a function Do of a loop.
func (j *journal) round(_ context.Context, g *distlock.TryGuard) error {
	j.note(singleton.Slot{Guard: g})
	return nil
}

// nothing is a function Do of a schedule.
func (j *journal) nothing(_ context.Context, s singleton.Slot) error {
	j.note(s)
	return nil
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) slots() (times []string) {
	for _, e := range j.all() {
		times = append(times, e.slot.Time.Format("15:04"))
	}
	return times
}

func (j *journal) want(t *testing.T, want string) {
	t.Helper()
	assert.Equal(t, strings.Join(j.slots(), " "), want, "slots %q, want %q")
}

var wantErr = assert.Is

func stopped(is bool) bson.E { return e("stopped", is) }
