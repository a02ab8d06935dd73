package pinger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// Owner is what the pinger must know of the locks of its process. The methods are called from the
// pinger's goroutines, with none of its locks held, and must not block for long.
type Owner interface {
	// TermBegan is called with every new term, before the ping loop goes on.
	TermBegan(t *Term)
	// Sweep is called after an acknowledged ping, before the store is asked for what the process
	// holds: the owner hands over what is to be released.
	Sweep()
	// Swept is called when what Sweep began is done.
	Swept()
	// Owns reports, between Sweep and Swept, whether at any time since Sweep a guard, trusted or
	// not but not yet released, or an attempt that is under way names the session.
	Owns(ts bson.ObjectID) bool
	// Guarded returns the sessions of the guards that are trusted under t now.
	Guarded(t *Term) []catalog.Session
	// Vanished is called for a session that Guarded returned before the store was asked and that
	// the store's answer does not show. The answer may have been stale: ask again before
	// ending anything.
	Vanished(ctx context.Context, s catalog.Session)
	// ReleaseInStore takes a session out of its lock, holder or waiter, in one try, and tells the
	// waiter of this process that is granted the lock by it. Errors: those of [catalog.Queues.Leave].
	ReleaseInStore(ctx context.Context, s catalog.Session) error
}

// Told is told, by the pinger's goroutines, of what they did. It must not block: a ping waits for
// it.
type Told interface {
	// Pinged: a ping went on for took, and was late by late; err is nil when it was acknowledged.
	Pinged(process string, took, late time.Duration, err error)
	// Over: the process id was given up for a new one.
	Over(process string, cause error)
	// ReleasedLate: a late release is done.
	ReleasedLate(s catalog.Session)
}

// Config is what a LockPinger needs. Store, Owner and NewProcess are required; of the
// durations only Interval, Takeover and Margin must be set, the others have defaults.
type Config struct {
	Store catalog.Pings
	Owner Owner
	// NewProcess makes a process id, a new one on every call.
	NewProcess func() (string, error)
	// Interval is the time between two pings; mongos: 30 s.
	Interval time.Duration
	// Takeover is how long this process must have been silent before a contender may take
	// its locks; mongos: 15 min. Written into the ping document.
	Takeover time.Duration
	// Margin is how long before that the process stops trusting itself.
	Margin time.Duration
	// Limit bounds one command; default 5 s.
	Limit time.Duration
	// PruneAge is the age from which a ping that no lock names is deleted; default 4 days.
	PruneAge time.Duration
	// PruneEvery is the time between two prunings, give or take half; default 1 h.
	PruneEvery time.Duration
	// PruneLocks deletes lock documents, too, that have been free for so long.
	PruneLocks bool
	Logger     zerolog.Logger
	// Told is told of what happens; nil tells nobody.
	Told Told
	// Jitter returns a number in [0, 1); default [clock.Chance].
	Jitter func() float64
}

func (c Config) withDefaults(by clock.Clock) Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.Limit, 5*time.Second)
	set(&c.PruneAge, 4*24*time.Hour)
	set(&c.PruneEvery, time.Hour)
	if c.Jitter == nil {
		c.Jitter = func() float64 { return clock.Chance(by) }
	}
	return c
}

// LockPinger keeps one process alive in lockpings. Make it with [New], then [LockPinger.Start] it.
// Safe for concurrent use.
type LockPinger struct {
	cfg   Config
	clock clock.Clock
	log   zerolog.Logger
	hold  time.Duration
	queue releaseQueue

	steady atomic.Int64 // since when pings are acknowledged, monotonic; -1 after a failure

	beat   beat                 // owned by whoever pings: Start, then the ping loop
	term   atomic.Pointer[Term] // set by it; nil before the first acknowledged ping
	server atomic.Pointer[catalog.Server]
	stats  counters

	mu      sync.Mutex         // guards doubted
	doubted map[*identity]bool // see Doubt

	chores   chan chore // ping loop -> chore loop: a ping was acknowledged
	stopOnce sync.Once
	stopping context.Context // ends when Close begins
	stop     context.CancelFunc
	pinging  context.Context // of pings and releases; ends with Close's context: see Close
	hangUp   context.CancelFunc
	loops    sync.WaitGroup
}

// New makes a pinger that does nothing yet. Of ctx it takes the clock of a test or a simulation, if
// it carries one, and does not keep it.
func New(ctx context.Context, cfg Config) (*LockPinger, error) {
	if cfg.Store == nil || cfg.Owner == nil || cfg.NewProcess == nil {
		return nil, errors.New("pinger: Store, Owner and NewProcess must be set")
	}
	if cfg.Interval <= 0 || cfg.Takeover <= 0 || cfg.Margin < 0 || cfg.Margin >= cfg.Takeover {
		return nil, fmt.Errorf("pinger: need Interval > 0 and 0 <= Margin < Takeover, have %v, %v, %v",
			cfg.Interval, cfg.Margin, cfg.Takeover)
	}
	by := clock.From(ctx)
	cfg = cfg.withDefaults(by)
	p := &LockPinger{
		cfg: cfg, clock: by, log: cfg.Logger, hold: cfg.Takeover - cfg.Margin,
		chores: make(chan chore, 1),
	}
	p.steady.Store(-1)
	p.stopping, p.stop = context.WithCancel(context.Background())
	p.pinging, p.hangUp = context.WithCancel(context.Background())
	return p, nil
}

// Start sends the first ping and starts the loops. When it returns nil a term has begun. Errors:
// those of [catalog.Pings.Ping]; then nothing runs and Start may be called again.
func (p *LockPinger) Start(ctx context.Context) error {
	if err := p.Ping(ctx); err != nil {
		return err
	}
	p.loops.Add(2)
	go p.pingLoop()  // ends with stopping; waited for by Close
	go p.choreLoop() // ends with stopping; waited for by Close
	return nil
}

// Term returns the current term, nil when there is none: then no ping was acknowledged in time and
// nothing may be acquired.
func (p *LockPinger) Term() *Term {
	if t := p.term.Load(); t != nil && t.Err() == nil {
		return t
	}
	return nil
}

// Last returns the current or the last term, to ask why it ended; nil before the first.
func (p *LockPinger) Last() *Term { return p.term.Load() }

// Process returns the process id under which it pings; empty before the first ping was
// acknowledged.
func (p *LockPinger) Process() string {
	if t := p.term.Load(); t != nil {
		return t.id.process
	}
	return ""
}

// Steady returns since when pings are acknowledged without a failure, on the process's monotonic
// clock; ok is false while they are not. A contender that judges others' pings asks whether the
// server took any.
func (p *LockPinger) Steady() (since time.Duration, ok bool) {
	at := p.steady.Load()
	return time.Duration(at), at >= 0
}

// Server returns what the server said of itself at the last tick.
func (p *LockPinger) Server() catalog.Server {
	if s := p.server.Load(); s != nil {
		return *s
	}
	return catalog.Server{}
}

// SetServer notes a newer answer of Hello. Call it once before Start.
func (p *LockPinger) SetServer(s catalog.Server) {
	if old := p.server.Swap(&s); old != nil && old.Primary != s.Primary {
		p.log.Info().Str("before", old.Primary).Str("now", s.Primary).Msg("another primary")
	}
}

// Close stops the loops, tries every release that is left once more, ends the term and removes the
// ping document. Where the term is over already it pings once more before: what a twin has is left
// to it. Everything is bounded by ctx. What could not be released is in the error. The locks of the
// process must have been released before. Idempotent.
//
// A ping that is under way is waited for, at most its own limit: given up, it could be applied
// after the ping document was removed and make it anew.
func (p *LockPinger) Close(ctx context.Context) error {
	first := false
	p.stopOnce.Do(func() { first = true; p.stop() })
	defer context.AfterFunc(ctx, p.hangUp)()
	p.loops.Wait()
	if !first || p.Last() == nil {
		return nil
	}
	proof := error(nil)
	settled, pinged := p.settle(ctx)
	if !pinged && p.Term() == nil && p.Last().id.used.Err() == nil { // there may be a twin by now
		proof = p.Ping(ctx)
	}
	if ctx.Err() == nil { // else there is no time to try anything again
		p.releaseAgain()
	}
	<-p.queue.drain()
	p.hangUp()
	t, err := p.Last(), p.left()
	alone := t.Err() == nil
	t.end(ErrStopped)
	if !settled {
		err = errors.Join(err, fmt.Errorf("pinger: what an acquisition of unknown outcome takes stays "+
			"held until it is taken over: %w", catalog.ErrUnknownOutcome))
	}
	if !alone { // a twin may go on with the document
		return errors.Join(err, proof)
	}
	if failed := p.removePing(ctx, t.Process()); failed != nil {
		err = errors.Join(err, fmt.Errorf("pinger: %w", failed))
	}
	return err
}

// removePing removes the ping of a process that has ended. To do it twice is harmless, so one of
// unknown outcome, such as over a connection that had died unnoticed, is tried once more.
func (p *LockPinger) removePing(ctx context.Context, process string) error {
	err := p.cfg.Store.ApplyPing(ctx, transition.RemovePing{Process: process})
	if errors.Is(err, catalog.ErrUnknownOutcome) && ctx.Err() == nil {
		err = p.cfg.Store.ApplyPing(ctx, transition.RemovePing{Process: process})
	}
	return err
}

func (p *LockPinger) pingLoop() {
	defer p.loops.Done()
	failures := 0
	due := p.clock.Now()
	for {
		wait := p.untilNext(failures)
		due.Mono += wait
		if !clock.Sleep(p.clock, wait, p.stopping.Done()) {
			return
		}
		p.noteLateness(due)
		if p.guarded("ping", func() error { return p.Ping(p.pinging) }) {
			failures = 0
		} else {
			failures++
		}
		due = p.clock.Now()
	}
}

// untilNext returns the pause before the next ping: the interval, give or take a tenth; after
// failures 0.5 s, 1 s, 2 s, never more than the interval.
func (p *LockPinger) untilNext(failures int) time.Duration {
	if failures == 0 {
		return p.Jitter(p.cfg.Interval, 0.1)
	}
	pause := min(500*time.Millisecond, p.cfg.Interval/4) << min(failures-1, 20)
	if pause <= 0 || pause > p.cfg.Interval {
		pause = p.cfg.Interval
	}
	return p.Jitter(pause, 0.1)
}

// Jitter returns d, give or take the share of it.
func (p *LockPinger) Jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 + share*(2*p.cfg.Jitter()-1)))
}

// guarded runs one step and reports whether it succeeded. A panic in it is logged and counted; the
// next tick comes all the same. mongos 1.8 lost its ping thread for good that way (H16).
func (p *LockPinger) guarded(step string, do func() error) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			ok = false
			p.stats.panics.Add(1)
			defer func() { _ = recover() }() // a logger that panics is no reason to stop either
			p.log.Error().Str("step", step).Str("panic", catalog.Printable(fmt.Sprint(r), 400)).
				Msg("pinger: recovered")
		}
	}()
	return do() == nil
}

// Stats counts what a pinger has done since it was made.
type Stats struct {
	Pings       int64         // acknowledged
	Failures    int64         // not acknowledged
	ProcessIDs  int64         // that were given up
	Ghosts      int64         // ghosts of lost replies found
	Late        int64         // late releases done
	Pruned      int64         // old pings deleted
	Panics      int64         // recovered
	MaxLateness time.Duration // worst lateness of the loop itself
	Lateness    time.Duration // the latest
	// Skew is by how much the server's clock was ahead of this machine's at the last acknowledged
	// ping, give or take half of its round trip.
	Skew time.Duration
	Left int // sessions that are yet to be taken out of their locks
}

type counters struct {
	pings, failures, sessions, ghosts, late, pruned, panics, maxLate, lateness, skew atomic.Int64

	prepareFailed atomic.Bool
	lateEpisode   bool // owned by the ping loop
}

// Stats returns the counts so far.
func (p *LockPinger) Stats() Stats {
	c := &p.stats
	return Stats{
		Pings: c.pings.Load(), Failures: c.failures.Load(), ProcessIDs: c.sessions.Load(),
		Ghosts: c.ghosts.Load(), Late: c.late.Load(), Pruned: c.pruned.Load(),
		Panics: c.panics.Load(), MaxLateness: time.Duration(c.maxLate.Load()),
		Lateness: time.Duration(c.lateness.Load()), Skew: time.Duration(c.skew.Load()),
		Left: p.queue.len(),
	}
}
