package distlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/queue"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// A Manager is one process with its heartbeat. It is safe for concurrent use.
type Manager struct {
	cfg    settings
	log    zerolog.Logger
	events *emitter
	store
	pinger *pinger.LockPinger
	owned  *ownedSessions
	judge  *watch.Judge
	queue  *queue.Queue
	agents *agents
	watch  *watcher
	calls  queue.FailureLog // logs failed calls of Lock

	closeOnce sync.Once
	closed    chan struct{} // closed when Close begins
	loops     loops
}

// settings holds the effective configuration and the clock, which a test may replace.
type settings struct {
	Config
	Clock clock.Clock
}

// New checks the configuration and the server, starts the heartbeat, and returns when the first
// ping is acknowledged. It creates the indexes in the background. The first acquisition reports a
// missing privilege to write.
//
// Errors, without any password: *ConfigError; [ErrUnavailable] if the server cannot be reached
// within ctx and CommandTimeout; *PrivilegeError; an error for servers before 4.4, for FerretDB
// 1.x, and for config behind a mongos.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := usable(ctx); err != nil {
		return nil, fmt.Errorf("distlock: new: %w", err)
	}
	cfg = cfg.withDefaults()
	if cfg.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("distlock: new: the host has no name, set Config.Host: %w", err)
		}
		if problem := badHost(host); problem != "" {
			problem = "the name of the host " + problem + ", or set Config.Host"
			return nil, &ConfigError{Problems: []string{problem}}
		}
		cfg.Host = host
	}
	s, err := openStore(ctx, cfg, true)
	if err != nil {
		return nil, creating(err)
	}
	in := settings{Config: cfg, Clock: clock.From(ctx)}
	asked := s.locks
	s = s.prompt(cfg.CommandTimeout)
	m, err := newManager(clock.With(ctx, in.Clock), in, s)
	if err != nil {
		s.end(ErrClosed)
		return nil, errors.Join(creating(err), s.hangUp(context.WithoutCancel(ctx)))
	}
	m.warnOfUpgrade(ctx, asked)
	return m, nil
}

// creating wraps an error of New. It returns a *ConfigError unchanged, because the text of a
// *ConfigError is complete.
func creating(err error) error {
	if errors.Is(err, ErrConfig) {
		return err
	}
	return fmt.Errorf("distlock: new: %w", err)
}

func newManager(ctx context.Context, cfg settings, s store) (*Manager, error) {
	server, err := s.pings.Hello(ctx)
	if err != nil {
		return nil, err
	}
	if err := acceptable(server, cfg.Config); err != nil {
		return nil, err
	}
	if s.pings != s.locks { // both clients must work
		if _, err := s.locks.Hello(ctx); err != nil {
			return nil, err
		}
	}
	cfg.URI = mongocatalog.WithoutSecrets(cfg.URI, cfg.URI) // Config returns it
	m := &Manager{cfg: cfg, log: cfg.Logger, store: s, closed: make(chan struct{})}
	m.events = newEmitter(cfg.Observer, cfg.Clock, cfg.Logger)
	m.owned = newOwned(m)
	skew := func() time.Duration { return m.pinger.Stats().Skew }
	var pingerEvents pinger.Told
	var judgeEvents watch.Events
	if m.events != nil {
		reporter := &background{m.events, m.Process, skew, m.owned.releasedLate}
		pingerEvents, judgeEvents = reporter, reporter
	}
	m.pinger, err = pinger.New(ctx, pinger.Config{
		Store: s.pings, Owner: m.owned,
		NewProcess: func() (string, error) { return newProcess(cfg) },
		Interval:   cfg.Ping, Takeover: cfg.Takeover, Margin: cfg.Margin, Limit: cfg.CommandTimeout,
		PruneAge: max(pruneAge, cfg.Takeover), PruneEvery: pruneEvery, PruneLocks: cfg.PruneLocks,
		Logger: cfg.Logger, Told: pingerEvents,
	})
	if err != nil {
		return nil, err
	}
	m.pinger.SetServer(server)
	m.judge = &watch.Judge{
		Store: m.locks, Clock: cfg.Clock, Policy: cfg.policy(), Pinger: m.pinger, Log: m.log,
		Interval: min(cfg.Ping, cfg.MaxWatchGap/2), Go: m.loops.Go, Closed: m.closed,
	}
	m.calls = queue.FailureLog{Log: m.log, Action: "waiting for a lock"}
	m.queue = queue.New(queue.Config{
		Store: m.locks, Judge: m.judge, Pinger: m.pinger, Clock: cfg.Clock, Log: m.log,
		Ping: cfg.Ping, Poll: cfg.Poll, PollMax: cfg.PollMax, MaxWatchGap: cfg.MaxWatchGap,
		Closed: m.closed, Go: m.loops.Go,
	})
	m.agents = &agents{m: m, byName: map[string]*agent{}}
	m.watch = newWatcher(m)
	m.judge.Granted = m.queue.Deliver
	m.judge.Events = judgeEvents
	if err := m.pinger.Start(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// warnOfUpgrade logs a warning if an upgrade of the server will delete the collections.
func (m *Manager) warnOfUpgrade(ctx context.Context, store catalog.Catalog) {
	if s, ok := store.(interface {
		UpgradeDrops(ctx context.Context) string
	}); ok {
		if warning := s.UpgradeDrops(ctx); warning != "" {
			m.log.Warn().Str("problem", warning).Msg("upgrade")
		}
	}
}

// acceptable returns an error for a deployment on which the guarantees would not hold.
func acceptable(s catalog.Server, cfg Config) error {
	if err := mongocatalog.Supported(s, cfg.Database); err != nil {
		return err
	}
	if s.ConfigServer && cfg.Database == defaultDatabase && cfg.Takeover > configServerTakeover {
		problem := fmt.Sprintf("Takeover is %v, must be at most %v on a config server: MongoDB's own "+
			"lock manager takes over after that", cfg.Takeover, configServerTakeover)
		return &ConfigError{Problems: []string{problem}}
	}
	return nil
}

// newProcess returns <host>:<pid>:<unix seconds>:<uuid>. In mongos, two processes could have the
// same id, because the random part was never seeded.
func newProcess(cfg settings) (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d:%d:%s", cfg.Host, os.Getpid(), cfg.Clock.Now().Wall.Unix(), id), nil
}

// Config returns the effective configuration; its URI has no credentials.
func (m *Manager) Config() Config { return m.cfg.Config }

// Process returns the process id under which this Manager acquires locks now.
func (m *Manager) Process() string { return m.pinger.Process() }

// Err returns nil if locks can be acquired, else [ErrClosed] or [ErrNoHeartbeat].
func (m *Manager) Err() error {
	if clock.Over(m.closed) {
		return ErrClosed
	}
	if m.pinger.Term() == nil {
		return ErrNoHeartbeat
	}
	return nil
}

// Close ends all guards with [ErrClosed], releases their locks, waits for running acquisitions and
// releases, stops the heartbeat and removes the ping document. It returns at the latest when ctx
// ends, or after one CommandTimeout if ctx has already expired. The error names the locks that may
// stay held until a takeover. The ping document then stays, so that the takeover comes as early as
// after a crash. A second Close waits for the first and returns nil, or an error if its own ctx
// ends first.
//
// A function of [Manager.Do], an election, a loop, a schedule or a queue may run under a lock.
// Close ends its context, and releases the lock when it has returned. Close waits for it until ctx
// ends, or for one CommandTimeout if ctx has no deadline: let the deadline outlast the functions.
// If a function calls Close with its own context or a derived one, its lock is released
// immediately. A handler of a queue must not call Close. Release all other guards before Close:
// only their callers know whether the work has ended.
func (m *Manager) Close(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; pass context.Background()", ErrBadOption)
	}
	first := false
	m.closeOnce.Do(func() { first = true })
	if !first {
		select {
		case <-m.life.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("distlock: close: %w while it is being closed", context.Cause(ctx))
		}
	}
	close(m.closed)
	defer m.end(ErrClosed)
	if err := m.close(ctx); err != nil {
		return fmt.Errorf("distlock: close: %w", err)
	}
	return nil
}

func (m *Manager) close(ctx context.Context) error {
	holds := m.owned.endAll(ErrClosed)
	ctx, done := m.releaseContext(ctx) // ctx may be the context of a guard, which has ended now
	defer done()
	used, free := inUse(ctx, holds)
	runParallel(len(free), func(i int) { m.releaseAtClose(ctx, free[i]) })
	running := m.releaseInUse(ctx, used)
	if running != nil { // no time is left, and the ping document must stay with the locks
		ended, end := context.WithCancelCause(ctx)
		end(errTimeUp)
		ctx = ended
	}
	busy := m.owned.untilIdle(ctx) // current attempts detect Close and undo their acquisitions
	errs := []error{running, m.pinger.Close(ctx)}
	if busy != nil {
		errs = append(errs, fmt.Errorf("an acquisition did not end: %w", busy))
	}
	waiting, stop := m.within(ctx, m.cfg.CommandTimeout) // a store may ignore its context
	defer stop()
	m.loops.Wait(waiting)
	return errors.Join(append(errs, m.hangUp(ctx))...)
}

// whileOpen returns a context for the commands of a call. The context ends when ctx ends or when
// Close is done.
func (m *Manager) whileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// within returns a context that ends when ctx ends, or when d has passed by the Manager's clock.
func (m *Manager) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := m.cfg.Clock.NewTimer(d)
	go func() { // ends with ctx
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(errTimeUp)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// loops holds the background goroutines of a Manager.
type loops struct {
	mu   sync.Mutex // guards over, and the start of goroutines
	over bool
	wg   sync.WaitGroup
}

func (l *loops) Go(run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.wg.Go(run)
	}
}

// Wait waits until all goroutines have returned or ctx ends. After the call of Wait, Go starts no
// goroutine. A goroutine returns when the Manager is closed, at the latest after its current
// command.
func (l *loops) Wait(ctx context.Context) {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the loops
		l.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Stats contains the counters and the state of a Manager, and its server.
type Stats struct {
	Pings       int64         // acknowledged pings
	Failures    int64         // pings that were not acknowledged
	Processes   int64         // process ids that were replaced by a new one
	Ghosts      int64         // ghosts that were found
	Late        int64         // late releases in the background
	Pruned      int64         // old ping documents that were deleted
	Panics      int64         // panics recovered in the heartbeat
	MaxLateness time.Duration // the largest delay of the heartbeat
	Server      Server        // as of the last hello

	Held       int              // acquisitions that were not released, including lost ones
	Waiting    int              // calls of Lock and Do that wait for their locks
	OldestWait time.Duration    // longest present wait of a call, without elections, loops and queues
	Unreleased int              // sessions that are still to be released in the background
	PingAge    time.Duration    // time since the last acknowledged ping was sent
	TrustedFor time.Duration    // time for which guards are trusted if no ping follows; 0 when lost
	Lateness   time.Duration    // delay of the heartbeat at its last ping
	Skew       time.Duration    // lead of the server's clock at the last acknowledged ping
	Listening  string           // source of grants: "stream", "polling", "" without waiters
	Commands   map[string]int64 // commands sent to the store, by operation, such as "acquire"
}

// Server describes the server and its capabilities.
type Server struct {
	Kind            string // "standalone", "replica set", "mongos", "ferretdb" or "memory"
	Version         string // as the server reports it, such as "7.0.5"
	Primary         string // election id of the primary, or process of a standalone server
	Embedded        bool   // the embedded server
	ConfigServer    bool   // a mongod with --configsvr
	Transactions    bool
	ChangeStreams   bool
	PipelineUpdates bool
}

// Stats returns the counters and the present state. It never blocks. No I/O.
func (m *Manager) Stats() Stats {
	beat, server := m.pinger.Stats(), m.pinger.Server()
	s := Stats{
		Pings: beat.Pings, Failures: beat.Failures, Processes: beat.ProcessIDs, Ghosts: beat.Ghosts,
		Late: beat.Late, Pruned: beat.Pruned, Panics: beat.Panics, MaxLateness: beat.MaxLateness,
		Server: Server{
			Kind: string(server.Kind), Version: server.Version, Primary: server.Primary,
			Embedded: server.Front, ConfigServer: server.ConfigServer, Transactions: server.Transactions,
			ChangeStreams: server.ChangeStreams, PipelineUpdates: server.PipelineUpdates,
		},
		Held: m.owned.count(), Unreleased: beat.Left,
		Lateness: beat.Lateness, Skew: beat.Skew, Listening: m.listening(), Commands: m.sent.byKind(),
	}
	s.Waiting, s.OldestWait = m.agents.waiting()
	if term := m.pinger.Last(); term != nil {
		s.PingAge, s.TrustedFor = term.Age(), term.Left()
	}
	return s
}

func (m *Manager) listening() string {
	switch attends, streaming := m.queue.Status(); {
	case !attends:
		return ""
	case streaming:
		return "stream"
	}
	return "polling"
}
