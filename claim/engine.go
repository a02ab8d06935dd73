package claim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

const (
	// prefix is the first part of all lock names of this package.
	prefix = rows.SlotPrefix
	// patience is the time limit of a command on rows, in units of CommandTimeout. The limit is long,
	// because a claim that the server carries out after the limit costs two more commands.
	patience = 6
	// rare is the minimum pause after a background command, in units of the time that the command
	// took. A slow server then has time for the commands of the workers. The minimum is at most
	// mostPause, because the process may have been suspended during the command.
	rare = 20
	// mostLogged is the maximum number of logged problems that a process remembers.
	mostLogged = 10_000
	// mostCounted is the maximum number of rows in one state that are counted for metrics.
	mostCounted = 10_000
)

// An engine is the part of a Queue that does not depend on the type of its rows.
type engine struct {
	m      *distlock.Manager
	store  rows.Store
	cfg    Config
	prefix string // starts the names of the queue's locks
	locks  string // the database of the locks
	clock  clock.Clock
	log    zerolog.Logger
	limit  time.Duration // the time limit of one command
	pace   pace
	hooks  hooks

	observer  metrics.Observer // of the Manager
	unobserve func()
	rescues   atomic.Bool  // this process holds the rescue lock
	owed      atomic.Int64 // claims that the server refuses to end

	base  context.Context // the context of commands, which no caller cancels
	life  context.Context // ends at Close
	end   context.CancelFunc
	woken chan struct{} // one element if a row may be ready
	due   chan struct{} // one element if a retry of this process is due

	arrivals   *arrivals
	entering   chan struct{} // one element while the process takes a slot
	background sync.WaitGroup

	mu      sync.Mutex                 // guards the rest
	begun   bool                       // the background goroutines run
	closing chan struct{}              // closed at the end of Close; nil before Close
	running *run                       // nil if neither Run nor Serve runs
	slot    *distlock.TryGuard         // the current slot; nil without a slot
	claims  map[bson.ObjectID]*claimed // by batch, of the current slot and of lost slots
	unsure  bool                       // claims of lost replies must be given back first
	asides  map[string]aside
	logged  map[string]bool // problems that were logged

	paused      bool          // the last known state of the pause switch
	pausedUntil time.Duration // when the switch is read again

	said    time.Time     // the server's time in its last reply; zero: unknown
	replied time.Duration // the monotonic time of that reply
}

func newEngine(ctx context.Context, m *distlock.Manager, store rows.Store, namespace string,
	cfg Config) *engine {
	mc := m.Config()
	e := &engine{m: m, store: store, cfg: cfg, prefix: prefix + namespace + ":" + cfg.name(),
		locks: mc.Database, clock: clock.From(ctx), limit: patience * mc.CommandTimeout,
		entering: make(chan struct{}, 1), woken: make(chan struct{}, 1), due: make(chan struct{}, 1),
		claims: map[bson.ObjectID]*claimed{}, asides: map[string]aside{},
		logged: map[string]bool{}}
	e.base = rows.Alone(context.WithoutCancel(ctx))
	e.life, e.end = context.WithCancel(e.base)
	e.log = mc.Logger.With().Str("queue", cfg.Queue).Logger()
	e.pace.clock = e.clock
	e.arrivals = newArrivals(e.clock)
	if cfg.Due != "" {
		e.arrivals.server = func() time.Time { now, _ := e.lastNow(); return now }
	}
	e.observer = metrics.Of(mc.Observer)
	e.observer.Sampled(metrics.Zeros([]string{e.prefix[len(prefix):]}, metrics.Attempts)...)
	e.unobserve = e.observer.Asks(e.samples)
	e.hooks.ctx, e.hooks.end = context.WithCancel(e.base)
	return e
}

// sent calls the given function with the time limit of a command, and records the result in e.pace.
func sent[T any](e *engine, send func(ctx context.Context) (T, error)) (T, error) {
	ctx, done := context.WithTimeout(e.base, e.limit) // no caller can cancel the command
	defer done()
	at := e.clock.Now().Mono
	got, err := send(ctx)
	e.pace.note(at, err)
	return got, err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen passes the events of the change stream to arrivals until Close. It returns early if the
// server has no change streams, or if the user may not open one.
func (e *engine) listen() {
	for {
		err := e.store.Watch(e.life, e.arrivals.hear)
		e.arrivals.ended()
		if e.life.Err() != nil {
			return
		}
		if errors.Is(err, rows.ErrNoStream) {
			e.log.Debug().Err(err).Msg("the queue is polled")
			return
		}
		e.log.Warn().Err(err).Msg("the change stream of the queue ended")
		if isDenied(err) || !clock.Sleep(e.clock, jittered(e.clock, tendEvery), e.life.Done()) {
			return
		}
	}
}

// isPaused reports whether the queue is paused. It reads the pause switch once a minute, or every
// five seconds while the queue is paused.
func (e *engine) isPaused() bool {
	now := e.clock.Now().Mono
	e.mu.Lock()
	was, known := e.paused, now < e.pausedUntil
	if !known {
		e.pausedUntil = now + e.limit // so that other workers do not read the switch meanwhile
	}
	e.mu.Unlock()
	if known {
		return was
	}
	paused, err := sent(e, func(ctx context.Context) (bool, error) {
		return e.store.Paused(ctx, e.prefix)
	})
	if err != nil {
		paused = was
		if e.logOnce("switch") {
			e.log.Warn().Err(err).Msg("reading the pause switch failed")
		}
	}
	if paused != was {
		e.log.Info().Bool("paused", paused).Msg("the queue was paused or resumed")
	}
	pause, replied := 12*tendEvery, e.clock.Now().Mono
	if paused {
		pause = tendEvery
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = paused
	e.pausedUntil = replied + jittered(e.clock, max(pause, rest(replied-now)))
	return paused
}

// logOnce reports whether this is the first call with this text.
func (e *engine) logOnce(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logged[what] || len(e.logged) >= mostLogged {
		return false
	}
	e.logged[what] = true
	return true
}

type claimed struct {
	row   rows.Row           // zero until the reply to the claim
	guard *distlock.TryGuard // of the slot
	since time.Duration      // monotonic time of the claim
	tried atomic.Bool        // an end was sent
	stuck bool               // the handler did not return, and was reported; only for findStuck

	mu       sync.Mutex // guards the rest
	cancel   context.CancelCauseFunc
	lost     error                   // why the claim has lost its row; nil before
	stopped  time.Duration           // when the handler's context ended; zero before
	returned bool                    // the handler has returned
	stopWork context.CancelCauseFunc // ends the context of DoneWith; nil if DoneWith does not run
	working  sync.WaitGroup          // of DoneWith
	done     bool                    // set by DoneWith
	doneErr  error                   // the error of the last DoneWith
}

func (c *claimed) lose(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost = why; c.cancel != nil {
		c.cancel(why)
	}
}

// isHandled reports whether a handler works on the row, outside of DoneWith, and has not lost it.
func (c *claimed) isHandled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.returned && !c.done && c.lost == nil && c.stopWork == nil
}

// has reports whether a row has this claim.
func (c *claimed) has(row rows.Row) bool {
	return row.Mark.State == rows.Claimed && row.Mark.Batch == c.row.Mark.Batch
}

// isCurrent reports whether a row has this claim and is not cancelled.
func (c *claimed) isCurrent(row rows.Row) bool { return c.has(row) && !row.Mark.Cancelled }

// hooks calls OnDead and OnStuck in the background, one call at a time.
type hooks struct {
	ctx   context.Context
	end   context.CancelFunc
	one   sync.Mutex // held during a call
	calls sync.WaitGroup
}

func (e *engine) hook(name string, call func(context.Context, Info), row rows.Row) {
	if call == nil {
		return
	}
	e.hooks.calls.Go(func() {
		e.hooks.one.Lock()
		defer e.hooks.one.Unlock()
		defer func() {
			if value := recover(); value != nil {
				e.log.Error().Err(fmt.Errorf("panic: %v", value)).Str("row", rows.Text(row.ID)).
					Bytes("stack", debug.Stack()).Msg(name + " panicked")
			}
		}()
		call(e.hooks.ctx, infoOf(row))
	})
}

func (e *engine) sample(m *metrics.Metric, value float64, before ...string) metrics.Sample {
	return metrics.Sample{Metric: m, Labels: append(before, e.prefix[len(prefix):]), Value: value}
}

func (e *engine) report(m *metrics.Metric, value float64, before ...string) {
	e.observer.Sampled(e.sample(m, value, before...))
}

// samples returns the metrics of the queue. Only the process with the rescue lock counts the rows.
func (e *engine) samples(ctx context.Context) []metrics.Sample {
	var oldest time.Duration
	for _, c := range e.flying() {
		oldest = max(oldest, e.clock.Now().Mono-c.since)
	}
	all := []metrics.Sample{e.sample(metrics.Oldest, oldest.Seconds(), "claimed")}
	if !e.rescues.Load() {
		return all
	}
	now, _ := e.lastNow() // the rescue reads the clock
	d, err := e.store.Count(ctx, mostCounted)
	if err != nil {
		return all
	}
	for state, n := range map[string]int64{"ready": d.Ready, "claimed": d.Claimed,
		"retrying": d.Retrying, "dead": d.Dead, "later": d.Later, "odd": d.Odd} {
		all = append(all, e.sample(metrics.Rows, float64(n), state))
	}
	age := func(since time.Time) float64 {
		if since.IsZero() {
			return 0
		}
		return max(now.Sub(since), 0).Seconds()
	}
	late := age(d.Retry)
	if e.cfg.Due != "" {
		late = max(late, age(d.Since))
	}
	return append(all, e.sample(metrics.Oldest, age(d.Since), "ready"),
		e.sample(metrics.Oldest, late, "late"))
}
