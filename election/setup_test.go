package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

func TestMain(m *testing.M) { effort.Main(m) }

const (
	name         = "leader"
	takeoverTime = 15 * time.Minute
	margin       = takeoverTime / 4
	pingTime     = 30 * time.Second
	reading      = 6 * time.Second // the longest time between two readings, and a little
	never        = 2 * time.Hour
)

// world is one server and the processes that stand on it, in virtual time.
type world struct {
	t   *testing.T
	mem *memcatalog.Catalog
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{t: t, mem: memcatalog.New(memcatalog.Options{})})
	})
}

// proc is one process.
type proc struct {
	*distlock.Manager
	store *fault.Catalog
	mem   *memcatalog.Catalog
}

func (w *world) start() *proc {
	w.t.Helper()
	return w.startWith(func(*distlock.Config) {})
}

func (w *world) startWith(change func(*distlock.Config)) *proc {
	w.t.Helper()
	p := &proc{store: fault.Wrap(w.mem), mem: w.mem}
	cfg := distlock.Config{Catalog: p.store, Host: "host"}
	change(&cfg)
	m, err := distlock.New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Manager = m
	w.t.Cleanup(func() {
		p.heal()
		if err := m.Close(context.Background()); err != nil {
			w.t.Errorf("Close: %v", err)
		}
	})
	synctest.Wait()
	return p
}

// kill cuts a process off from the server, as its death or a pause looks to the others.
func (p *proc) kill() {
	p.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
		return fault.Refused(call.Op)
	})
	p.mem.BreakStreams() // the others open theirs again
	synctest.Wait()
}

func (p *proc) heal() { p.store.Set(nil) }

// A run is one call of Run, with a function that the test steers.
type run struct {
	w       *world
	p       *proc
	e       *election.Election
	cancel  context.CancelFunc
	over    chan struct{}
	err     error // once over is closed
	started chan *leading
	ended   sync.Once
	gone    chan struct{} // closed when the function shall return

	mu     sync.Mutex // guards fences
	fences []int64
}

// leading is one call of the function.
type leading struct {
	ctx    context.Context
	leader *election.Leadership
	finish chan error // what the function shall return
}

// stand runs an election of p until the end of the test. Its function returns what the test says,
// and only then, whatever becomes of its context.
func (w *world) stand(p *proc, opts ...election.Option) *run {
	w.t.Helper()
	r := &run{w: w, p: p, e: election.New(p.Manager, name), over: make(chan struct{}),
		started: make(chan *leading, 100), gone: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	w.t.Cleanup(func() {
		r.end()
		<-r.over
	})
	go func() {
		defer close(r.over)
		r.err = r.e.Run(ctx, r.lead, opts...)
	}()
	synctest.Wait()
	return r
}

func (r *run) lead(ctx context.Context, leader *election.Leadership) error {
	r.mu.Lock()
	r.fences = append(r.fences, leader.Fence())
	r.mu.Unlock()
	l := &leading{ctx: ctx, leader: leader, finish: make(chan error, 1)}
	r.started <- l
	select {
	case err := <-l.finish:
		return err
	case <-r.gone:
		return nil
	}
}

// obey makes a function return as soon as its context has ended.
func (l *leading) obey() *leading {
	context.AfterFunc(l.ctx, func() { l.finish <- l.ctx.Err() })
	return l
}

// wantLeader waits until r leads.
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

// wantNone checks that r has not been told to lead.
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
		synctest.Wait() // a candidate leaves the line in the background
		return r.err
	case <-time.After(never):
		r.w.t.Fatal("Run does not return")
		return nil
	}
}

func (w *world) lock() catalog.Lock {
	w.t.Helper()
	l, bad := catalog.ParseLock(w.mem.Document(catalog.LocksCollection, name))
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

func closed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refused is what the store says of a change that matches nothing.
func (w *world) refused() error { return catalog.ErrNoMatch }
