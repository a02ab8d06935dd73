package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

func TestMain(m *testing.M) { effort.Main(m) }

// world is one server and the processes that lock on it, in virtual time.
type world struct {
	t   *testing.T
	mem *memcatalog.Catalog
}

// inBubble runs a test in virtual time, on an empty server, with mongos' defaults for timing.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	inBubbleAlone(t, test)
}

// inBubbleAlone is inBubble for a test that counts what the whole program has: no other test runs.
func inBubbleAlone(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{t: t, mem: memcatalog.New(memcatalog.Options{})})
	})
}

// proc is one process: its Manager and the way to its store, where faults are put.
type proc struct {
	*distlock.Manager
	store *fault.Catalog
	w     *world
	kept  []*distlock.TryGuard // a dropped guard would be released whenever the collector runs

	fellows []*proc // which are killed with it
}

// start starts a process. It is closed at the end of the test if it was neither closed nor killed.
func (w *world) start(change func(*distlock.Config)) *proc {
	w.t.Helper()
	return w.startBy(clock.System(), change)
}

// startBy starts a process that lives by a clock of its own.
func (w *world) startBy(c clock.Clock, change func(*distlock.Config)) *proc {
	w.t.Helper()
	p := &proc{store: fault.Wrap(w.mem), w: w}
	cfg := distlock.Config{Catalog: p.store, Host: "host"}
	if change != nil {
		change(&cfg)
	}
	m, err := distlock.New(clock.With(w.t.Context(), c), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Manager = m
	w.t.Cleanup(func() {
		p.store.Set(nil)
		_ = p.Close(context.Background())
		runtime.KeepAlive(p.kept)
	})
	synctest.Wait()
	return p
}

// kill cuts a process off from the server for good, as SIGKILL would as far as others can see.
func (p *proc) kill() {
	p.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
		return fault.Refused(call.Op)
	})
	for _, fellow := range p.fellows {
		fellow.kill()
	}
}

func (p *proc) try(name string, opts ...distlock.Option) (*distlock.TryGuard, error) {
	g, err := p.Lock(name).TryLock(context.Background(), opts...)
	if g != nil {
		p.kept = append(p.kept, g)
	}
	return g, err
}

func (p *proc) mustTry(name string, opts ...distlock.Option) *distlock.TryGuard {
	p.w.t.Helper()
	g, err := p.try(name, opts...)
	if err != nil {
		p.w.t.Fatalf("TryLock(%q): %v", name, err)
	}
	return g
}

// Break breaks a lock, as an operator would.
func (p *proc) Break(ctx context.Context, name string, fence int64, why string, session ...bson.ObjectID) error {
	_, err := p.Inspector().Break(ctx, name, fence, why, session...)
	return err
}

// doc reads the lock document as it is stored.
func (w *world) doc(name string) bson.Raw {
	return w.mem.Document(catalog.LocksCollection, name)
}

func (w *world) lock(name string) catalog.Lock {
	w.t.Helper()
	l, bad := catalog.ParseLock(w.doc(name))
	if bad != nil {
		w.t.Fatal(bad)
	}
	return l
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want one that matches %v", got, want)
	}
}

func held(t *testing.T, err error) *distlock.HeldError {
	t.Helper()
	var h *distlock.HeldError
	if !errors.As(err, &h) {
		t.Fatalf("error is %v, want a *HeldError", err)
	}
	return h
}

const (
	takeoverTime   = 15 * time.Minute
	pingTime       = 30 * time.Second
	commandTimeout = 5 * time.Second
	holdTime       = takeoverTime - takeoverTime/4
	slack          = 2 * time.Second
)
