package distlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/history"
)

// HistoryConfig says what a Manager writes into the collection lockhistory beside the locks, and for how long that
// stays. It is written by the background, after a ping, in batches; an acquisition or a release waits for none of
// it and sends nothing more, and a Manager to which nothing happened sends nothing. What happened since the last
// ping is lost when the process dies. What cannot be written is kept, up to 4,000 events, and tried again after
// the next ping; an entry "missed" says how many were dropped. A user without the privilege to write there gets one
// warning in the log, and everything but the history.
type HistoryConfig struct {
	Mode HistoryMode
	// Keep is the age at which entries are deleted: by the server, which has an index for that, and by whoever
	// writes. From 1 min to 10 years; default 30 days. Of several processes the shortest counts, but for the
	// index, which is as the first one made it.
	Keep time.Duration
	// Most is the most entries there are: the oldest go. Each process looks after a hundredth of that, or 250. From
	// 100 to 10 million; default 100,000, and on the embedded server 1,000 at most.
	Most int
}

// A HistoryMode says which events are written.
type HistoryMode int

// The modes.
const (
	// HistoryDefault is HistoryNotable, and HistoryOff in database "config", which belongs to a cluster.
	HistoryDefault HistoryMode = iota
	// HistoryOff: none.
	HistoryOff
	// HistoryNotable: acquisitions and releases of locks that were held for a second or longer, every change of a
	// leader, and whatever is unusual: takeovers, evictions, losses, breaks, guards that were dropped, and
	// releases that failed at first.
	HistoryNotable
	// HistoryAll: every acquisition and release as well. Twice as many documents as acquisitions.
	HistoryAll
)

// historyLeast is for how long a lock was held that is worth an entry.
const historyLeast = time.Second

// Bounds and defaults of a HistoryConfig.
const (
	historyKeep, shortestKeep, longestKeep = 30 * 24 * time.Hour, time.Minute, 10 * 365 * 24 * time.Hour
	historyMost, fewestMost, largestMost   = 100_000, 100, 10_000_000
	// embeddedMost bounds the entries on the embedded server, where a command grows with the collection and keeps
	// others waiting.
	embeddedMost = 1_000
)

func (c HistoryConfig) withDefaults(database string) HistoryConfig {
	if c.Mode == HistoryDefault {
		if c.Mode = HistoryNotable; database == defaultDatabase {
			c.Mode = HistoryOff
		}
	}
	if c.Mode == HistoryOff {
		return c
	}
	if c.Keep == 0 {
		c.Keep = historyKeep
	}
	if c.Most == 0 {
		c.Most = historyMost
	}
	return c
}

// check reports what contradicts, of a configuration with its defaults.
func (c HistoryConfig) check(say func(string, ...any)) {
	switch {
	case c.Mode < HistoryDefault || c.Mode > HistoryAll:
		say("History.Mode is %d, must be one of the constants HistoryDefault to HistoryAll", c.Mode)
	case c.Mode == HistoryOff:
		if c.Keep != 0 || c.Most != 0 {
			say("History.Keep and History.Most are for a history, and there is none: set History.Mode, which is off " +
				"in database \"config\" unless you say HistoryNotable, or leave them zero")
		}
		return
	}
	if c.Keep < shortestKeep || c.Keep > longestKeep {
		say("History.Keep is %v, must be from %v to %v", c.Keep, shortestKeep, longestKeep)
	}
	if c.Most < fewestMost || c.Most > largestMost {
		say("History.Most is %d, must be from %d to %d", c.Most, fewestMost, largestMost)
	}
}

// newRecorder returns what writes the history; nil when there is none.
func newRecorder(cfg settings, store catalog.History, server catalog.Server) *history.Recorder {
	c := cfg.History
	if c.Mode == HistoryOff {
		return nil
	}
	least := historyLeast
	if c.Mode == HistoryAll {
		least = 0
	}
	if server.Kind == catalog.FerretDB {
		c.Most = min(c.Most, embeddedMost)
	}
	return history.New(history.Config{
		Store: store, Clock: cfg.Clock, Log: cfg.Logger, Least: least, Keep: c.Keep, Most: c.Most,
		PruneEvery: pruneEvery,
	}, history.Instant{Server: server.Time, Here: cfg.Clock.Now()})
}

// A historian makes entries of events.
type historian struct{ *history.Recorder }

// tellingHistory adds the historian to an Observer, if there is one.
func tellingHistory(o Observer, r *history.Recorder) Observer {
	if r == nil {
		return o
	}
	return Observers(o, historian{r})
}

// Observe implements [Observer].
func (h historian) Observe(e Event) {
	switch e.Kind {
	case EventAcquired, EventGranted:
		h.Acquired(entryOf(e), e.Label == electionLabel)
	case EventTakenOver:
		h.Acquired(entryOf(e), true)
	case EventReleased:
		h.Ended(entryOf(e), errors.Is(e.Err, ErrLockLost) || errors.Is(e.Err, ErrReleaseFailed))
	case EventLost, EventDropped:
		h.Ended(entryOf(e), true)
	case EventReleasedLate, EventBroken, EventEvicted:
		h.Happened(entryOf(e))
	}
}

// electionLabel is the label of package election: whoever has it and holds a lock leads.
const electionLabel = "election"

// leaseKind is the kind of the entry for a guard whose lease ran out.
const leaseKind = "lease ran out"

func entryOf(e Event) catalog.HistoryEntry {
	entry := catalog.HistoryEntry{
		Kind: e.Kind.String(), Session: catalog.Session{Name: e.Name, TS: e.Session}, Process: e.Process,
		Previous: e.Previous, Fence: e.Fence, Label: e.Label, Why: e.Why, Rule: e.Rule, Evidence: e.Evidence,
		Waited: e.Waited, Held: e.Held,
	}
	if e.Mode != modeWord(catalog.Exclusive) {
		entry.Mode = catalog.Mode(e.Mode)
	}
	if e.Kind == EventLost && errors.Is(e.Err, ErrLeaseExpired) {
		entry.Kind = leaseKind
	}
	var lost *LostError
	switch {
	case errors.As(e.Err, &lost) && lost.Cause != nil:
		entry.Cause = lost.Cause.Error()
	case e.Err != nil:
		entry.Cause = e.Err.Error()
	}
	return entry
}

// writeHistory writes what is left when the Manager is closed, or says that it is lost.
func (m *Manager) writeHistory(ctx context.Context) {
	if m.history == nil {
		return
	}
	ctx, done := context.WithTimeout(ctx, m.cfg.CommandTimeout)
	defer done()
	if err := m.history.Flush(ctx, history.Instant{}); err != nil {
		m.log.Warn().Err(err).Msg("the last of the history was not written")
	}
}

// chronicle is what the pinger calls after its chores; nil when there is no history.
func chronicle(r *history.Recorder) func(context.Context, time.Time, clock.Reading) error {
	if r == nil {
		return nil
	}
	return func(ctx context.Context, server time.Time, received clock.Reading) error {
		return r.Flush(ctx, history.Instant{Server: server, Here: received})
	}
}

// A breakWriter writes the breaks of an Inspector that has no Manager: nobody would write them later. The lock is
// broken by then, so a failure is only logged. Three commands, and two for the indexes.
type breakWriter struct {
	cfg   settings
	store catalog.Catalog
}

// Observe implements [Observer].
func (w breakWriter) Observe(e Event) { w.ObserveContext(context.Background(), e) }

// ObserveContext implements [ContextObserver].
func (w breakWriter) ObserveContext(ctx context.Context, e Event) {
	server, err := w.store.Hello(ctx)
	if err == nil {
		r := newRecorder(w.cfg, w.store, server)
		e.Process = fmt.Sprintf("%s:%d", w.host(), os.Getpid())
		r.Happened(entryOf(e))
		err = r.Flush(ctx, history.Instant{})
	}
	if err != nil {
		w.cfg.Logger.Warn().Err(err).Msg("the break is not in the history")
	}
}

func (w breakWriter) host() string {
	if w.cfg.Host != "" {
		return w.cfg.Host
	}
	host, _ := os.Hostname() // without a name it is known by its number
	return host
}
