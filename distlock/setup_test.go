package distlock_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/locktest"
)

func TestMain(m *testing.M) { effort.Main(m) }

type world struct{ *locktest.World }

// inBubble runs a test in virtual time, with an empty store and the default timing.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) { test(t, &world{w}) })
}

func runInBubble(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// inBubbleAlone is like inBubble, but the test does not run in parallel, because it counts
// resources of the whole program.
func inBubbleAlone(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubbleAlone(t, func(t *testing.T, w *locktest.World) { test(t, &world{w}) })
}

// goroutines counts the goroutines in bubbles. Outside of bubbles, the runtime starts temporary
// goroutines.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "synctest bubble")
}

// A proc is one process. Tests inject faults into its Store.
type proc struct {
	*locktest.Proc
	w *world

	fellows []*proc // killed with this process
}

// At its end, the test closes the process if it is still running.
func (w *world) start(change func(*distlock.Config)) *proc {
	w.T.Helper()
	return w.startBy(clock.System(), change)
}

func (w *world) startBy(c clock.Clock, change func(*distlock.Config)) *proc {
	w.T.Helper()
	return &proc{Proc: w.StartBy(c, change), w: w}
}

// kill cuts the process off from the server. Other processes treat it as dead.
func (p *proc) kill() {
	p.Kill()
	for _, fellow := range p.fellows {
		fellow.kill()
	}
}

// Break breaks a lock as an operator does.
func (p *proc) Break(
	ctx context.Context, name string, fence int64, why string, session ...bson.ObjectID,
) error {
	_, err := p.Inspector().Break(ctx, name, fence, why, session...)
	return err
}

func (w *world) wantFree(name string) {
	w.T.Helper()
	if l := w.Lock(name); l.Held {
		w.T.Errorf("%q is still held by %s", name, l.Process)
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
