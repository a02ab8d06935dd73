package pinger

import (
	"cmp"
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

// An Owner knows the locks of the pinger's process. The pinger's goroutines call the methods
// without holding a mutex of the pinger. The methods must not block for long.
type Owner interface {
	// TermBegan is called with every new term, before the next ping.
	TermBegan(t *Term)
	// Sweep is called after an acknowledged ping of term t, before the pinger reads the sessions in
	// the store. Sweep releases the guards that callers have dropped, and returns the sessions of the
	// guards that are trusted under t. The pinger calls swept after its last call of Owns.
	Sweep(t *Term) (guarded []catalog.Session, swept func())
	// Owns reports whether a pending acquisition or an unreleased guard has the session ts, or had it
	// at any time since the call of Sweep. The pinger calls Owns between Sweep and the function swept
	// that Sweep returned.
	Owns(ts bson.ObjectID) bool
	// Vanished is called for a session that Sweep returned, if the store did not contain it. The reply
	// of the store may be stale, so the owner must read the lock before it ends a guard.
	Vanished(ctx context.Context, s catalog.Session)
	// ReleaseInStore tries once to remove a holder or waiter from its lock. If the removal grants the
	// lock to waiters of this process, ReleaseInStore notifies them. Errors: those of
	// [catalog.Catalog].
	ReleaseInStore(ctx context.Context, s catalog.Session) error
}

// Told receives the events of the pinger. Its methods must not block, because a ping waits for
// them.
type Told interface {
	// Pinged reports a ping. The argument took is the round trip of the ping, and late is the delay of
	// the ping loop. If the ping was acknowledged, err is nil.
	Pinged(process string, took, late time.Duration, err error)
	// Over reports that the process id was given up. The next ping uses a new id.
	Over(process string, cause error)
	// ReleasedLate reports a late release: the session is no longer in its lock. A release is late if
	// an earlier try failed, if the acquisition had an unknown outcome, or if the guard was lost or
	// dropped.
	ReleasedLate(s catalog.Session)
}

// Config configures a LockPinger. Store, Owner, NewProcess, Interval, Takeover and Margin are
// required.
type Config struct {
	Store catalog.Pings
	Owner Owner
	// NewProcess returns a new process id.
	NewProcess func() (string, error)
	// Interval is the time between two pings; mongos: 30 s.
	Interval time.Duration
	// Takeover is the time for which this process must be silent before a contender may take its
	// locks; mongos: 15 min. It is written into the ping document.
	Takeover time.Duration
	// Margin is a part of Takeover. The process trusts its locks for Takeover - Margin after the send
	// of an acknowledged ping.
	Margin time.Duration
	// Limit is the time limit of one command; default 5 s.
	Limit time.Duration
	// PruneAge is the age at which the ping of a process without a lock is deleted; default 4 days.
	PruneAge time.Duration
	// PruneEvery is the mean time between two prunings; default 1 h. The actual time is random, from
	// half of PruneEvery to one and a half.
	PruneEvery time.Duration
	// PruneLocks makes the pinger delete the documents of free locks that were not acquired for
	// PruneAge.
	PruneLocks bool
	Logger     zerolog.Logger
	// Told receives the events. It may be nil.
	Told Told
	// Jitter returns a random number in [0, 1); default [clock.Chance].
	Jitter func() float64
}

func (c Config) withDefaults(by clock.Clock) Config {
	c.Limit = cmp.Or(c.Limit, 5*time.Second)
	c.PruneAge = cmp.Or(c.PruneAge, 4*24*time.Hour)
	c.PruneEvery = cmp.Or(c.PruneEvery, time.Hour)
	if c.Jitter == nil {
		c.Jitter = func() float64 { return clock.Chance(by) }
	}
	return c
}

// A LockPinger sends the pings of one process. [New] makes it, and [LockPinger.Start] starts it. It
// is safe for concurrent use, except for [LockPinger.Ping].
type LockPinger struct {
	cfg   Config
	clock clock.Clock
	log   zerolog.Logger
	hold  time.Duration
	queue releaseQueue

	steady atomic.Int64 // monotonic time since which pings are acknowledged; -1 after a failure

	beat   beat                 // owned by Start, then by the ping loop
	term   atomic.Pointer[Term] // set by the owner of beat; nil before the first acknowledged ping
	server atomic.Pointer[catalog.Server]
	stats  counters

	chores   chan chore // from the ping loop to the chore loop
	closed   atomic.Bool
	stopping context.Context // ends when Close begins
	stop     context.CancelFunc
	pinging  context.Context // for pings and releases; ends with the context of Close
	hangUp   context.CancelFunc
	loops    sync.WaitGroup
}

// New makes a pinger without starting it. The pinger uses the clock that ctx carries, and does not
// keep ctx.
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
	p.queue = releaseQueue{
		entries: map[catalog.Session]*release{}, running: make(chan struct{}, releaseParallel),
	}
	p.queue.idle = sync.NewCond(&p.queue.mu)
	p.steady.Store(-1)
	p.stopping, p.stop = context.WithCancel(context.Background())
	p.pinging, p.hangUp = context.WithCancel(context.Background())
	return p, nil
}

// Start sends the first ping and starts the loops. When it returns nil, a term has begun. Errors:
// those of [catalog.Pings.Ping]. After an error no loop runs, and Start may be called again.
func (p *LockPinger) Start(ctx context.Context) error {
	if err := p.Ping(ctx); err != nil {
		return err
	}
	p.loops.Add(2)
	go p.pingLoop()  // ends with stopping; waited for by Close
	go p.choreLoop() // ends with stopping; waited for by Close
	return nil
}

// Term returns the current term, or nil if there is none. Without a term the process must not
// acquire a lock.
func (p *LockPinger) Term() *Term {
	if t := p.term.Load(); t != nil && t.Err() == nil {
		return t
	}
	return nil
}

// Last returns the latest term, which may be over. It returns nil before the first term.
func (p *LockPinger) Last() *Term { return p.term.Load() }

// Process returns the process id of the pings. It is empty before the first acknowledged ping.
func (p *LockPinger) Process() string {
	if t := p.term.Load(); t != nil {
		return t.id.process
	}
	return ""
}

// Steady returns the time of the first acknowledgement after the last failed ping, by the monotonic
// clock. ok is false if the last ping failed, or if no ping was sent yet. A contender calls Steady
// before it judges the pings of other processes, to check that the server accepts pings.
func (p *LockPinger) Steady() (since time.Duration, ok bool) {
	at := p.steady.Load()
	return time.Duration(at), at >= 0
}

// Server returns the server's last reply to Hello.
func (p *LockPinger) Server() catalog.Server {
	if s := p.server.Load(); s != nil {
		return *s
	}
	return catalog.Server{}
}

// SetServer records a reply to Hello. The first call must precede Start.
func (p *LockPinger) SetServer(s catalog.Server) {
	if old := p.server.Swap(&s); old != nil && old.Primary != s.Primary {
		p.log.Info().Str("before", old.Primary).Str("now", s.Primary).Msg("another primary")
	}
}

// Close stops the loops, tries the remaining releases once more, ends the term and removes the ping
// document. The caller must first release the locks of the process. The context ctx bounds all
// steps. The error names the locks that could not be released. Then the ping document stays,
// because without it a contender would have to watch the locks for the whole takeover time. A
// second call returns nil immediately.
//
// A twin is a copy of this process with the same process id. If the term is over, a twin may have
// pinged. Close then sends a ping, which detects a twin. Close does not release the locks of a
// twin. If the term is still over after this ping, Close does not remove the ping document.
//
// Close waits for a ping in progress. Otherwise the server could apply the ping after the removal
// and create the document again.
func (p *LockPinger) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	p.stop()
	defer context.AfterFunc(ctx, p.hangUp)()
	p.loops.Wait()
	if p.Last() == nil {
		return nil
	}
	certain, proof := p.settle(ctx)
	p.queue.wait(false)   // the releases in progress may fail, too
	if ctx.Err() == nil { // otherwise no time is left for a try
		p.releaseAgain()
	}
	p.queue.wait(true)
	p.hangUp()
	t, err := p.Last(), p.unreleased()
	// Otherwise the document may belong to a twin, or a lock may stay held.
	remove := t.Err() == nil && err == nil && certain
	t.end(ErrStopped)
	if !certain {
		err = errors.Join(err, fmt.Errorf("pinger: a lock whose acquisition was not confirmed may "+
			"stay held until it is taken over: %w", catalog.ErrUnknownOutcome))
	}
	if !remove {
		return errors.Join(err, proof)
	}
	if failed := p.removePing(ctx, t.Process()); failed != nil {
		err = errors.Join(err, fmt.Errorf("pinger: %w", failed))
	}
	return err
}

// removePing removes the ping document of this process. If the outcome is unknown, it tries once
// more.
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
		if p.protect("ping", func() error { return p.Ping(p.pinging) }) {
			failures = 0
		} else {
			failures++
		}
		due = p.clock.Now()
	}
}

// untilNext returns the pause before the next ping: the interval, plus or minus a tenth. After the
// first failure the pause is 0.5 s, or a quarter of the interval if that is less. It doubles with
// every further failure, up to the interval.
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

// Jitter returns a random duration between d - share*d and d + share*d.
func (p *LockPinger) Jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 + share*(2*p.cfg.Jitter()-1)))
}

// protect runs one step and reports whether it succeeded. It recovers from a panic in the step,
// logs the panic and counts it. In mongos 1.8 a panic ended the ping thread.
func (p *LockPinger) protect(step string, do func() error) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			ok = false
			p.stats.panics.Add(1)
			defer func() { _ = recover() }() // a logger that panics must not stop the loop
			p.log.Error().Str("step", step).Str("panic", catalog.Printable(fmt.Sprint(r), 400)).
				Msg("pinger: recovered")
		}
	}()
	return do() == nil
}

// Stats counts the work of a pinger since New.
type Stats struct {
	Pings       int64         // acknowledged
	Failures    int64         // not acknowledged
	ProcessIDs  int64         // given up
	Ghosts      int64         // found
	Late        int64         // late releases
	Pruned      int64         // old pings
	Panics      int64         // recovered
	MaxLateness time.Duration // largest delay of the ping loop
	Lateness    time.Duration // latest delay of the ping loop
	// Skew is the server's clock minus this machine's clock at the last acknowledged ping, plus or
	// minus half of the ping's round trip.
	Skew time.Duration
	Left int // sessions in the queue of releases
}

type counters struct {
	pings, failures, sessions, ghosts, late, pruned, panics, maxLate, lateness, skew atomic.Int64

	prepareFailed atomic.Bool
	lateEpisode   bool // owned by the ping loop
}

// Stats returns the counts so far.
func (p *LockPinger) Stats() Stats {
	p.queue.mu.Lock()
	left := len(p.queue.entries)
	p.queue.mu.Unlock()
	c := &p.stats
	return Stats{
		Pings: c.pings.Load(), Failures: c.failures.Load(), ProcessIDs: c.sessions.Load(),
		Ghosts: c.ghosts.Load(), Late: c.late.Load(), Pruned: c.pruned.Load(),
		Panics: c.panics.Load(), MaxLateness: time.Duration(c.maxLate.Load()),
		Lateness: time.Duration(c.lateness.Load()), Skew: time.Duration(c.skew.Load()),
		Left: left,
	}
}
