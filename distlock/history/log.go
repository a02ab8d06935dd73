package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// Options say what is written and for how long it stays. The zero value means the defaults.
type Options struct {
	// All writes every acquisition and release. Without it short ones are left out: written are
	// locks that were held for a second or longer, every change of a leader, and whatever is
	// unusual: takeovers, evictions, losses, breaks, guards that were dropped, and releases that
	// failed at first.
	All bool
	// Keep is the age at which entries are deleted, by an index of the server and by each process that
	// writes: 1 min to 10 years, default 30 days. Of several processes the shortest counts; the
	// index is as the first process made it.
	Keep time.Duration
	// Most is how many entries there are at most, 100 to 10 million; the oldest go. Default
	// 100,000, and on the embedded server at most 1,000. Each process prunes when it has written a
	// hundredth of that, or 250, so between prunings there may be more.
	Most int
}

// Stats counts what a Log has written.
type Stats struct {
	Written  int64 // entries
	Missed   int64 // events that never will be
	Failures int64 // batches that failed and are tried again
}

// least is for how long a lock was held that is worth an entry.
const least = time.Second

// Bounds and defaults of Options.
const (
	day                                    = 24 * time.Hour
	defaultKeep, shortestKeep, longestKeep = 30 * day, time.Minute, 10 * 365 * day
	defaultMost, fewestMost, largestMost   = 100_000, 100, 10_000_000
	// embeddedMost bounds the entries on the embedded server, where a command grows with the
	// collection and keeps others waiting.
	embeddedMost = 1_000
)

// A store is where the entries are, and a server that says what it is.
type store interface {
	catalog.History
	Hello(ctx context.Context) (catalog.Server, error)
}

// A Log writes what its Manager tells it as an Observer, and reads what all have written. Make it
// with [New]. Safe for concurrent use.
type Log struct {
	store    store
	cfg      distlock.Config // with its defaults
	clock    clock.Clock
	recorder *recorder
	hangUp   func(context.Context) error // of the client that New made

	flushes chan struct{} // one element while a batch is being written
	failing bool          // owned by who has put it there: the last batch in the background failed
	mu      sync.Mutex    // guards closed, and beginning a batch against it
	closed  bool
	writing sync.WaitGroup
}

var errNoContext = fmt.Errorf("%w: the context is nil; pass context.Background()",
	distlock.ErrBadOption)

// New opens the store that cfg names; of its other fields it uses Database, CommandTimeout, Logger
// and Host. No I/O.
//
// Errors: *distlock.ConfigError with every contradiction; the cause of a ctx that has ended;
// [distlock.ErrUnavailable] when the DNS does not tell the hosts of a mongodb+srv.
func New(ctx context.Context, cfg distlock.Config, o Options) (*Log, error) {
	o, err := o.checked(cfg)
	if err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, errNoContext
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("distlock: new history: %w", context.Cause(ctx))
	}
	if cfg.Database == "" {
		cfg.Database = "config"
	}
	if cfg.CommandTimeout == 0 {
		cfg.CommandTimeout = 5 * time.Second
	}
	l := &Log{cfg: cfg, clock: clock.From(ctx), flushes: make(chan struct{}, 1)}
	if l.store, l.hangUp, err = open(cfg); err != nil {
		return nil, err
	}
	worth := least
	if o.All {
		worth = 0
	}
	l.recorder = newRecorder(recorderConfig{
		Store: l.store, Clock: l.clock, Log: cfg.Logger, Least: worth, Keep: o.Keep, Most: o.Most,
		EmbeddedMost: embeddedMost, PruneEvery: time.Hour, Server: l.store.Hello,
	}, instant{Here: l.clock.Now()})
	return l, nil
}

// checked returns o with its defaults, or every contradiction in it and in cfg.
func (o Options) checked(cfg distlock.Config) (Options, error) {
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Most == 0 {
		o.Most = defaultMost
	}
	var config *distlock.ConfigError
	if err := cfg.Validate(); err != nil && !errors.As(err, &config) {
		return o, err
	}
	var problems []string
	if config != nil {
		problems = config.Problems
	}
	if o.Keep < shortestKeep || o.Keep > longestKeep {
		problems = append(problems,
			fmt.Sprintf("Keep is %v, must be from %v to %v", o.Keep, shortestKeep, longestKeep))
	}
	if o.Most < fewestMost || o.Most > largestMost {
		problems = append(problems,
			fmt.Sprintf("Most is %d, must be from %d to %d", o.Most, fewestMost, largestMost))
	}
	if _, ok := cfg.Catalog.(store); !ok && cfg.Catalog != nil {
		problems = append(problems, "Catalog keeps no history: it needs the methods of catalog.History")
	}
	if len(problems) > 0 {
		return o, &distlock.ConfigError{Problems: problems}
	}
	return o, nil
}

// open opens the store, by a connection of its own where the Config has no client.
func open(cfg distlock.Config) (store, func(context.Context) error, error) {
	stay := func(context.Context) error { return nil }
	if cfg.Catalog != nil {
		return cfg.Catalog.(store), stay, nil
	}
	client, hangUp := cfg.Client, stay
	if client == nil {
		opts := cfg.ClientOptions
		if opts == nil {
			opts = options.Client()
		}
		var err error
		if client, err = mongocatalog.Dial(opts, cfg.URI, 1); err != nil {
			if !errors.Is(err, distlock.ErrUnavailable) {
				err = &distlock.ConfigError{Problems: []string{err.Error()}}
			}
			return nil, nil, err
		}
		hangUp = client.Disconnect
	}
	s, err := mongocatalog.New(client, mongocatalog.Options{
		Database: cfg.Database, CommandTimeout: cfg.CommandTimeout, Viewer: true,
	})
	if err != nil {
		return nil, nil, errors.Join(err, hangUp(context.Background()))
	}
	return s, hangUp, nil
}

// Stats returns the counts so far. No I/O.
func (l *Log) Stats() Stats { return l.recorder.stats() }

// Observe implements [distlock.Observer].
func (l *Log) Observe(e distlock.Event) { l.ObserveContext(context.Background(), e) }

// ObserveContext is told in place of Observe, see [distlock.Observer]. It blocks for a break by an
// Inspector without a Manager only.
func (l *Log) ObserveContext(ctx context.Context, e distlock.Event) {
	switch e.Kind {
	case distlock.EventPing:
		l.recorder.tellClock(instant{Server: e.At.Add(e.Skew), Here: l.clock.Now()})
		l.begin()
	case distlock.EventAcquired, distlock.EventGranted:
		l.recorder.acquired(entryOf(e), e.Label == electionLabel)
	case distlock.EventTakenOver:
		l.recorder.acquired(entryOf(e), true)
	case distlock.EventReleased:
		worth := errors.Is(e.Err, distlock.ErrLockLost) || errors.Is(e.Err, distlock.ErrReleaseFailed)
		l.recorder.ended(entryOf(e), worth)
	case distlock.EventLost, distlock.EventDropped:
		l.recorder.ended(entryOf(e), true)
	case distlock.EventReleasedLate, distlock.EventEvicted:
		l.recorder.happened(entryOf(e))
	case distlock.EventBroken:
		alone := e.Process == ""
		if alone {
			e.Process = fmt.Sprintf("%s:%d", l.host(), os.Getpid())
		}
		l.recorder.happened(entryOf(e))
		if alone { // nobody would write it later
			if err := l.flush(ctx); err != nil {
				l.cfg.Logger.Warn().Err(err).Msg("the break is not in the history")
			}
		}
	}
}

func (l *Log) host() string {
	if l.cfg.Host != "" {
		return l.cfg.Host
	}
	host, _ := os.Hostname() // without a name it is known by its number
	return host
}

// begin writes a batch in the background, unless one is being written.
func (l *Log) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.recorder.waits() {
		return
	}
	select {
	case l.flushes <- struct{}{}:
	default:
		return
	}
	l.writing.Go(func() { // ends within CommandTimeout; Close waits for it
		defer func() { <-l.flushes }()
		err := l.write(context.Background())
		if err != nil && !l.failing && !errors.Is(err, distlock.ErrUnavailable) {
			l.cfg.Logger.Warn().Err(err).Msg("the history was not written; it is tried again")
		}
		l.failing = err != nil
	})
}

// flush writes a batch when the one that is being written is done.
func (l *Log) flush(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, l.cfg.CommandTimeout)
	defer done()
	select {
	case l.flushes <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.flushes }()
	return l.write(ctx)
}

// write is for the goroutine that has put the element into flushes.
func (l *Log) write(ctx context.Context) (err error) {
	ctx, done := context.WithTimeout(ctx, l.cfg.CommandTimeout)
	defer done()
	defer func() {
		if r := recover(); r != nil { // a store that panics must not end the program
			err = fmt.Errorf("distlock: history: the store panicked: %v", r)
		}
	}()
	return l.recorder.flush(ctx, instant{})
}

// Close writes what is left, within ctx and Config.CommandTimeout, and disconnects the client that
// New made. Close the Manager first: what it tells afterwards is not written. Closing again returns
// nil.
func (l *Log) Close(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return nil
	}
	err := l.flush(ctx)
	if err != nil {
		l.cfg.Logger.Warn().Err(err).Msg("the last of the history was not written")
		err = fmt.Errorf("distlock: the last of the history was not written: %w", err)
	}
	l.writing.Wait()
	ctx, done := context.WithTimeout(ctx, l.cfg.CommandTimeout) // else the driver looks for the server
	defer done()
	return errors.Join(err, l.hangUp(ctx))
}
