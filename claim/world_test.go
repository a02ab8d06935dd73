package claim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

type item struct {
	ID    int `bson:"_id"`
	Child bool
	Chain string    `bson:"chain,omitempty"`
	Due   time.Time `bson:"execute_at,omitempty"`
}

// world is one server and the processes that claim its rows, in virtual time.
type world struct {
	*locktest.World
	t    *testing.T
	rows *memrows.Memory
	logs *logs
	tune func(*distlock.Config) // changes the configuration of Managers; nil: no changes
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) {
		test(t, &world{World: w, t: t, rows: memrows.New(rows.Options{}), logs: &logs{}})
	})
}

type logs struct {
	mu   sync.Mutex // guards text
	text []string
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(line))
	return len(line), nil
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "")
}

// The result is the number of log events that contain all of the given words.
func (l *logs) with(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// add inserts n rows with consecutive numbers, from first on.
func (w *world) add(first, n int) {
	w.t.Helper()
	docs := make([]any, n)
	for i := range docs {
		docs[i] = item{ID: first + i}
	}
	assert.Must(w.t, w.rows.Insert(w.t.Context(), docs))
}

// proc is one process. Its connections to the locks and to the rows can fail.
type proc struct {
	*Queue[item]
	m    *locktest.Proc
	gate *gate
}

// start starts a process that runs until the end of the test.
func (w *world) start(cfg Config) *proc { return w.startAt(w.World, clock.System(), "", cfg) }

// startAt starts a process with the given clock. Its locks are on the given server, in the given
// database.
func (w *world) startAt(locks *locktest.World, c clock.Clock, database string,
	cfg Config) *proc {
	w.t.Helper()
	m := locks.StartBy(c, func(cfg *distlock.Config) {
		if cfg.Database = database; w.tune != nil {
			w.tune(cfg)
		}
	})
	g := &gate{Store: w.rows}
	cfg = cfg.withDefaults()
	if list := cfg.problems(); list != nil {
		w.t.Fatal(list)
	}
	ctx := clock.With(w.t.Context(), c)
	p := &proc{&Queue[item]{e: newEngine(ctx, m.Manager, g, "db.rows", cfg)}, m, g}
	p.e.log = zerolog.New(w.logs)
	w.t.Cleanup(func() {
		p.m.Heal()
		p.gate.Set(nil)
		assert.NoErr(w.t, p.Close(context.Background()), "closing the queue")
	})
	return p
}

type handler = func(context.Context, *Row[item]) error

func finish(context.Context, *Row[item]) error { return nil }

// run calls Run in the background until the end of the test. The returned function ends Run earlier
// and waits for its return.
func (p *proc) run(t *testing.T, handle handler) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoErr(t, p.Run(ctx, handle), "Run")
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// cut separates a process from the locks and the rows for good. Other processes cannot distinguish
// this from SIGKILL.
func (p *proc) cut() {
	p.m.Kill()
	p.gate.Set(func(context.Context, string, func() error) error { return errCut })
}

var errCut = errors.New("cut off on purpose")

func (w *world) counts() Counts {
	d, _ := w.rows.Count(context.Background(), 0)
	return Counts(d.Counts)
}

// settle waits until the given function accepts the counts of the rows. After the time limit it
// fails the test.
func (w *world) settle(limit time.Duration, done func(Counts) bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); !done(w.counts()); {
		if time.Now().After(end) {
			w.t.Fatalf("after %v: %+v", limit, w.counts())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func are(want Counts) func(Counts) bool { return func(c Counts) bool { return c == want } }

func allDone(n int) func(Counts) bool { return are(Counts{Done: int64(n)}) }

func (w *world) want(want Counts) {
	w.t.Helper()
	assert.Equal(w.t, w.counts(), want, "%+v, want %+v")
}

// refuse makes the server refuse changes of the selected rows.
func (w *world) refuse(these func(rows.Row) bool) {
	w.rows.Refuse(func(r rows.Row) error {
		if these(r) {
			return errors.New("document failed validation")
		}
		return nil
	})
}

var wantErr = assert.Is

func number(r rows.Row) int { n, _ := r.ID.AsInt64OK(); return int(n) }

func (w *world) row(id int) rows.Row {
	w.t.Helper()
	all := w.rows.All()
	i := slices.IndexFunc(all, func(r rows.Row) bool { return number(r) == id })
	if i < 0 {
		w.t.Fatal("no row ", id)
	}
	return all[i]
}

func TestMain(m *testing.M) { effort.Main(m) }
