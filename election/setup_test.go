package election_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/election"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/locktest"
)

func TestMain(m *testing.M) { effort.Main(m) }

const (
	name         = "leader"
	takeoverTime = locktest.TakeoverTime
	margin       = locktest.Margin
	pingTime     = locktest.PingTime
	reading      = 6 * time.Second // more than the time between two reads
	never        = 2 * time.Hour
)

// A world is a simulated server with its processes, in virtual time.
type world struct {
	*locktest.World
	t *testing.T
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) { test(t, &world{w, t}) })
}

func inBubbleSub(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// kill cuts a process off from the server. Other processes cannot distinguish this from its death.
func (w *world) kill(p *locktest.Proc) {
	p.Kill()
	w.Mem.BreakStreams() // the other processes open their streams again
	synctest.Wait()
}

func lead(ctx context.Context, p *locktest.Proc, do func() error, opts ...election.Option) error {
	fn := func(context.Context, *election.Leadership) error { return do() }
	return election.Run(ctx, p.Manager, name, fn, opts...)
}

// A run is one call of Run with a function that the test controls.
type run struct {
	w       *world
	p       *locktest.Proc
	e       *election.Election
	cancel  context.CancelFunc
	over    chan struct{}
	err     error // set before over is closed
	started chan *leading
	ended   sync.Once
	gone    chan struct{} // closed to make the function return
	led     atomic.Bool   // there was a term
}

// A leading is a call of the leader's function that has not returned.
type leading struct {
	ctx    context.Context
	leader *election.Leadership
	finish chan error // the result for the function to return
}

// If the result is panicking, the leader's function panics with the error.
type panicking struct{ error }

// stand runs a candidate of p until the end of the test. The candidate's function ignores the end
// of its context and returns only when the test decides.
func (w *world) stand(p *locktest.Proc, opts ...election.Option) *run {
	w.t.Helper()
	r := &run{w: w, p: p, e: election.New(p.Manager, name), over: make(chan struct{}),
		started: make(chan *leading, 100), gone: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	w.t.Cleanup(func() { _ = r.quit() })
	go func() {
		defer close(r.over)
		r.err = r.e.Run(ctx, r.lead, opts...)
	}()
	synctest.Wait()
	return r
}

func (r *run) lead(ctx context.Context, leader *election.Leadership) error {
	r.led.Store(true)
	l := &leading{ctx: ctx, leader: leader, finish: make(chan error, 1)}
	r.started <- l
	select {
	case err := <-l.finish:
		if p, panics := err.(panicking); panics {
			panic(p.error)
		}
		return err
	case <-r.gone:
		return nil
	}
}

// obey makes the function return as soon as its context has ended.
func (l *leading) obey() *leading {
	context.AfterFunc(l.ctx, func() { l.finish <- l.ctx.Err() })
	return l
}

func (r *run) wantLeader() *leading {
	r.w.t.Helper()
	select {
	case l := <-r.started:
		return l
	case <-time.After(never):
		r.w.t.Fatal("it never leads")
		return nil
	}
}

func (r *run) wantNone() {
	r.w.t.Helper()
	synctest.Wait()
	select {
	case <-r.started:
		r.w.t.Fatal("it leads")
	default:
	}
}

func (r *run) end() {
	r.cancel()
	r.ended.Do(func() { close(r.gone) })
}

// quit ends Run and its function, and returns the error of Run.
func (r *run) quit() error {
	r.w.t.Helper()
	r.end()
	select {
	case <-r.over:
		synctest.Wait() // a candidate leaves the queue in the background
		return r.err
	case <-time.After(never):
		r.w.t.Fatal("Run does not return")
		return nil
	}
}

func (w *world) lock() catalog.Lock { return w.Lock(name) }

var wantErr = assert.Is

func closed(c <-chan struct{}) bool {
	synctest.Wait()
	return clock.Over(c)
}
