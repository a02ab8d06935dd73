package distlock_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/locktest"
)

func TestMain(m *testing.M) { effort.Main(m) }

// world is one server and its client processes, in virtual time.
type world struct {
	*locktest.World
	t   *testing.T
	mem *memcatalog.Catalog
}

// inBubble runs a test in virtual time, on an empty server, with the default timing of mongos.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) { test(t, &world{w, t, w.Mem}) })
}

// runInBubble runs a subtest like inBubble.
func runInBubble(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// inBubbleAlone runs a test like inBubble, but not in parallel, because the test counts resources
// of the program.
func inBubbleAlone(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubbleAlone(t, func(t *testing.T, w *locktest.World) { test(t, &world{w, t, w.Mem}) })
}

// goroutines counts the goroutines in bubbles. The runtime also has temporary goroutines outside of
// bubbles.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
}

// proc is one process: its Manager, and its store, into which tests inject faults.
type proc struct {
	*locktest.Proc
	store *fault.Catalog
	w     *world

	fellows []*proc // killed with this process
}

// start starts a process. The end of the test closes it if it was neither closed nor killed.
func (w *world) start(change func(*distlock.Config)) *proc {
	w.t.Helper()
	return w.startBy(clock.System(), change)
}

// startBy starts a process with another clock.
func (w *world) startBy(c clock.Clock, change func(*distlock.Config)) *proc {
	w.t.Helper()
	p := w.StartBy(c, change)
	return &proc{Proc: p, store: p.Store, w: w}
}

// kill cuts a process off from the server permanently. Other processes cannot distinguish this from
// its death.
func (p *proc) kill() {
	p.Kill()
	for _, fellow := range p.fellows {
		fellow.kill()
	}
}

func (p *proc) try(name string, opts ...distlock.Option) (*distlock.TryGuard, error) {
	return p.Try(name, opts...)
}

func (p *proc) mustTry(name string, opts ...distlock.Option) *distlock.TryGuard {
	p.w.t.Helper()
	return p.MustTry(name, opts...)
}

// Break breaks a lock as an operator would.
func (p *proc) Break(
	ctx context.Context, name string, fence int64, why string, session ...bson.ObjectID,
) error {
	_, err := p.Inspector().Break(ctx, name, fence, why, session...)
	return err
}

func (w *world) doc(name string) bson.Raw      { return w.Document(name) }
func (w *world) lock(name string) catalog.Lock { return w.Lock(name) }

// wantFree checks that a lock is free.
func (w *world) wantFree(name string) {
	w.t.Helper()
	if l := w.lock(name); l.Held {
		w.t.Errorf("%q is still held by %s", name, l.Process)
	}
}

var wantErr, held = assert.Is, locktest.WantHeld

const (
	takeoverTime   = locktest.TakeoverTime
	pingTime       = locktest.PingTime
	commandTimeout = locktest.CommandTimeout
	holdTime       = locktest.HoldTime
	slack          = 2 * time.Second
)
