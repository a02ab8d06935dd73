package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := endBrowser(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	effort.AtOnce(4)
	effort.Main(suite{m})
}

const (
	pingTime     = time.Second
	takeoverTime = 20 * time.Second
)

// world is a store, the page of that store, and processes that use locks in it.
type world struct {
	t     *testing.T
	mem   *memcatalog.Catalog
	store *fault.Catalog // for the page
	own   *fault.Catalog // for the processes
	page  *ui.Server
	kept  []*distlock.TryGuard

	history memoryHistory
	config  ui.Config // of the page
}

// inBubble runs a test in virtual time. The first function changes the configuration of the page.
// It may be nil.
func inBubble(t *testing.T, change func(*ui.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, change)) })
}

func newWorld(t *testing.T, change func(*ui.Config)) *world {
	t.Helper()
	w := &world{t: t, mem: memcatalog.New(memcatalog.Options{})}
	w.store, w.own = fault.Wrap(w.mem), fault.Wrap(w.mem)
	access := distlock.Config{Catalog: w.store, Database: "test", Observer: &w.history}
	inspector, err := distlock.NewInspector(t.Context(), access)
	assert.Must(t, err)
	cfg := ui.Config{Inspector: inspector, Past: w.history.read, Hosts: "memory", Database: "test",
		Loopback: true}
	if change != nil {
		change(&cfg)
	}
	w.config = cfg
	w.page = ui.New(t.Context(), cfg)
	t.Cleanup(func() {
		w.page.Close()
		runtime.KeepAlive(w.kept)
	})
	return w
}

func (w *world) process() *distlock.Manager {
	w.t.Helper()
	cfg := distlock.Config{Catalog: w.own, Host: "host", Database: "test", Ping: pingTime,
		Takeover: takeoverTime, Observer: &w.history}
	m := assert.Value(distlock.New(w.t.Context(), cfg))(w.t)
	w.t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

func (w *world) hold(m *distlock.Manager, name string, opts ...distlock.Option) *distlock.TryGuard {
	w.t.Helper()
	g := assert.Value(m.Lock(name).TryLock(w.t.Context(), opts...))(w.t)
	w.kept = append(w.kept, g)
	return g
}

// foreign stores a held lock as MongoDB's own lock manager writes it.
func (w *world) foreign(name string, session bson.ObjectID) {
	w.t.Helper()
	assert.Must(w.t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(2),
		"ts", session, "process", "ConfigServer", "who", "ConfigServer:x",
		"when", bson.NewDateTimeFromTime(time.Now()), "why", "split")))
}

// wait starts a goroutine that waits for the lock, and then holds it until the test ends.
func (w *world) wait(ctx context.Context, m *distlock.Manager, name string,
	opts ...distlock.Option) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if g, err := m.Lock(name).Lock(ctx, opts...); err == nil {
			<-ctx.Done()
			_ = g.Release()
		}
	})
	w.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (w *world) request(method, target string,
	change func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, target, http.NoBody)
	r.Host = "localhost:8087"
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	w.page.ServeHTTP(rec, r)
	return rec
}

// get returns a page. It fails the test if the status is not 200.
func (w *world) get(target string) string {
	w.t.Helper()
	rec := w.request(http.MethodGet, target, nil)
	if rec.Code != http.StatusOK {
		w.t.Errorf("%s: %d\n%s", target, rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func want(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q:\n%.6000s", text, main(page))
		}
	}
}

// main returns the content of a page without header and footer.
func main(page string) string {
	if _, inner, ok := strings.Cut(page, "<main>"); ok {
		return inner
	}
	return page
}

func lack(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%.6000s", text, main(page))
		}
	}
}

// browser receives the stream of a page.
type browser struct {
	mu     sync.Mutex // guards events and text
	events int
	text   string
	block  func() // if not nil, blocks while the browser does not read
	header http.Header
	leave  context.CancelFunc
	left   chan struct{}
}

func (b *browser) Header() http.Header { return b.header }
func (b *browser) WriteHeader(int)     {}
func (b *browser) Flush()              {}

func (b *browser) Write(p []byte) (int, error) {
	if b.block != nil {
		b.block()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events++
	b.text = string(p)
	return len(p), nil
}

// received returns the number of events and the last event.
func (b *browser) received() (int, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events, b.text
}

// open starts a browser that views a page until it leaves or the test ends.
func (w *world) open(target string, block func()) *browser {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	b := &browser{block: block, header: http.Header{}, leave: cancel, left: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	r.Host = "127.0.0.1"
	r.Header.Set("Accept", "text/event-stream")
	go func() {
		defer close(b.left)
		w.page.ServeHTTP(b, r)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-b.left
	})
	return b
}

// memoryHistory is a history in memory. As an Observer it records the same events as a history.Log.
type memoryHistory struct {
	mu      sync.Mutex // guards the fields below
	entries []history.Entry
	reads   int
	err     error // read returns this error
}

func (s *memoryHistory) Observe(e distlock.Event) {
	switch {
	case e.Kind < distlock.EventAcquired || e.Kind > distlock.EventEvicted,
		e.Kind == distlock.EventRefused || e.Kind == distlock.EventGaveUp:
		return
	}
	entry := history.Entry{ID: bson.NewObjectID(), At: e.At, Kind: e.Kind.String(), Name: e.Name,
		Process: e.Process, Previous: e.Previous, Session: e.Session, Fence: e.Fence, Why: e.Why,
		Rule: e.Rule, Evidence: e.Evidence, HeldMS: e.Held.Milliseconds()}
	if e.Err != nil {
		entry.Cause = e.Err.Error()
	}
	s.put(entry)
}

func (s *memoryHistory) put(all ...history.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, all...)
	slices.SortStableFunc(s.entries, func(a, b history.Entry) int { return a.At.Compare(b.At) })
}

func (s *memoryHistory) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *memoryHistory) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *memoryHistory) read(_ context.Context, q history.Query) (
	found []history.Entry, _ []*distlock.MalformedError, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, nil, s.err
	}
	for _, e := range slices.Backward(s.entries) {
		if len(found) < q.Limit && (q.Name == "" || q.Name == e.Name) {
			found = append(found, e)
		}
	}
	return found, nil, nil
}
