package history

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// Bounds of what waits to be written.
const (
	// buffer is how many events wait, and how many locks may be held whose acquisition has yet to
	// prove worth an entry.
	buffer = 4000
	// maxText bounds each text of an entry, in bytes; a lock's name is never longer.
	maxText = 1024
	// chunk is how many entries one command writes, so that it does not keep others waiting for long.
	chunk = 500
)

// missedKind is the kind of the entry that says how many events were not written.
const missedKind = "missed"

// recorderConfig is what a recorder needs. All of it is required but Least, Server and
// EmbeddedMost.
type recorderConfig struct {
	Store catalog.History
	Clock clock.Clock
	Log   zerolog.Logger
	// Least is for how long a lock must have been held to be worth an entry; 0 for any time.
	Least time.Duration
	// Keep is the age at which entries go, and Most how many there are at most.
	Keep time.Duration
	Most int
	// Server says what the server is, before the first batch: EmbeddedMost counts instead of a
	// larger Most on the embedded one, and its clock until another is told.
	Server       func(ctx context.Context) (catalog.Server, error)
	EmbeddedMost int
	// PruneEvery is the longest time between two prunings by a process that writes.
	PruneEvery time.Duration
}

// A recorder gathers entries and writes them. Safe for concurrent use; but flush is for one
// goroutine at a time.
type recorder struct {
	cfg recorderConfig

	mu      sync.Mutex // guards the fields below
	waiting []event    // oldest first
	held    map[bson.ObjectID]beginning
	missed  int64 // events dropped since the last batch that told
	off     bool  // the user may not write
	counts  Stats
	base    instant
	told    bool // the server's clock

	// Owned by flush.
	met, prepared, noPrune, pruned bool
	unindexed                      error         // why there are no indexes, until it is told
	unpruned                       int           // entries written since
	lastPrune                      time.Duration // monotonic
}

// An instant is the server's clock at an instant of this process.
type instant struct {
	Server time.Time
	Here   clock.Reading
}

type event struct {
	catalog.HistoryEntry
	here clock.Reading
}

// A beginning is an acquisition of a lock that was not held for Least yet.
type beginning struct {
	event
	noted bool // it has an entry already
}

// newRecorder returns a recorder; now may have no time of the server, which then is as the
// machine's.
func newRecorder(cfg recorderConfig, now instant) *recorder {
	if now.Server.IsZero() {
		now.Server = now.Here.Wall
	}
	return &recorder{cfg: cfg, held: map[bson.ObjectID]beginning{}, base: now}
}

// stats returns the counts so far.
func (r *recorder) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// acquired notes that a lock was acquired. It becomes an entry at once if it is worth one anyhow,
// else when the lock was held for Least.
func (r *recorder) acquired(e catalog.HistoryEntry, worth bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off {
		return
	}
	b := beginning{event: r.event(e), noted: worth || r.cfg.Least == 0}
	if b.noted {
		r.add(b.event)
	}
	switch {
	case len(r.held) < buffer:
		r.held[e.TS] = b
	case !b.noted:
		r.miss(1) // it may have turned out to need none
	}
}

// ended notes that a lock is held no more, or trusted no more, for which it was held for e.Held. It
// becomes an entry if it is worth one anyhow, if the lock was held for Least, or if its acquisition
// has one.
func (r *recorder) ended(e catalog.HistoryEntry, worth bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, young := r.held[e.TS]
	delete(r.held, e.TS)
	if r.off || !worth && e.Held < r.cfg.Least && !b.noted {
		return
	}
	if young && !b.noted {
		r.add(b.event)
	}
	r.add(r.event(e))
}

// happened notes an event that is worth an entry.
func (r *recorder) happened(e catalog.HistoryEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off {
		r.add(r.event(e))
	}
}

// event takes the time of an entry and bounds its texts.
func (r *recorder) event(e catalog.HistoryEntry) event {
	texts := []*string{&e.Process, &e.Previous, &e.Label, &e.Why, &e.Rule, &e.Evidence, &e.Cause}
	for _, text := range texts {
		*text = bounded(*text)
	}
	e.ID = bson.NewObjectID()
	return event{e, r.cfg.Clock.Now()}
}

// bounded cuts a text to what an entry takes.
func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// add puts an event into the buffer. The caller holds mu.
func (r *recorder) add(e event) {
	r.waiting = append(r.waiting, e)
	r.bound()
}

// bound drops the oldest of too many. The caller holds mu.
func (r *recorder) bound() {
	over := len(r.waiting) - buffer
	if over <= 0 {
		return
	}
	for _, e := range r.waiting[:over] {
		r.miss(max(1, e.Missed))
		r.counts.Missed -= e.Missed // counted when they were dropped
	}
	clear(r.waiting[:over]) // for their texts, until the slice grows anew
	r.waiting = r.waiting[over:]
}

// miss counts events that will not be written. The caller holds mu.
func (r *recorder) miss(n int64) {
	r.missed += n
	r.counts.Missed += n
}

// flush writes what there is to write: nothing, and no command is sent, or a batch, in chunks. now
// is the server's clock at an instant shortly before; without one the last that was told goes on.
// What could not be written is kept for the next time. A user that may not write is told once in
// the log, and that is the end of this recorder; then, as where there is nothing to write, the
// error is nil.
func (r *recorder) flush(ctx context.Context, now instant) error {
	r.tellClock(now)
	if !r.waits() {
		return nil
	}
	if err := r.meet(ctx); err != nil {
		return r.failed(nil, err)
	}
	batch := r.take()
	written := 0
	for written < len(batch) {
		part := batch[written:min(written+chunk, len(batch))]
		if err := r.write(ctx, part); err != nil {
			return r.failed(batch[written:], err)
		}
		r.wrote(len(part))
		written += len(part)
	}
	if written == 0 {
		return nil
	}
	return r.prune(ctx, written)
}

// tellClock tells the server's clock at an instant shortly before; one without a time is left out.
func (r *recorder) tellClock(now instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Server.IsZero() {
		r.base, r.told = now, true
	}
}

// waits reports whether a flush has anything to do.
func (r *recorder) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 || r.missed > 0 {
		return true
	}
	here := r.cfg.Clock.Now()
	for _, b := range r.held {
		if here.Mono-b.here.Mono >= r.cfg.Least {
			return true
		}
	}
	return false
}

// meet asks the server what it is, once.
func (r *recorder) meet(ctx context.Context) error {
	if r.met || r.cfg.Server == nil {
		return nil
	}
	server, err := r.cfg.Server(ctx)
	if err != nil {
		return err
	}
	r.met = true
	if server.Kind == catalog.FerretDB {
		r.cfg.Most = min(r.cfg.Most, r.cfg.EmbeddedMost)
	}
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	if !told {
		r.tellClock(instant{server.Time, r.cfg.Clock.Now()})
	}
	return nil
}

// take takes the batch out of the buffer: what waits, and the acquisitions of locks that are held
// for Least by now.
func (r *recorder) take() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := r.cfg.Clock.Now()
	for ts, b := range r.held {
		if here.Mono-b.here.Mono < r.cfg.Least {
			continue
		}
		delete(r.held, ts)
		if !b.noted {
			r.add(b.event)
		}
	}
	batch := r.waiting
	r.waiting = nil
	if r.missed > 0 {
		told := catalog.HistoryEntry{ID: bson.NewObjectID(), Kind: missedKind, Missed: r.missed}
		batch = append([]event{{told, here}}, batch...)
		r.missed = 0
	}
	for i := range batch {
		batch[i].At = r.base.at(batch[i].here)
	}
	return batch
}

// at returns the server's clock at another instant. Before the one that is known the machine may
// have been suspended.
func (i instant) at(then clock.Reading) time.Time {
	if then.Mono > i.Here.Mono {
		return i.Server.Add(then.Mono - i.Here.Mono).Truncate(time.Millisecond)
	}
	return i.Server.Add(-clock.HolderElapsed(then, i.Here)).Truncate(time.Millisecond)
}

func (r *recorder) write(ctx context.Context, batch []event) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	entries := make([]catalog.HistoryEntry, len(batch))
	for i, e := range batch {
		entries[i] = e.HistoryEntry
	}
	err := r.cfg.Store.AppendHistory(ctx, entries)
	if err == nil && r.unindexed != nil { // else one warning is enough
		r.cfg.Log.Warn().Err(r.unindexed).Msg("indexes of the history not created")
		r.unindexed = nil
	}
	return err
}

// prepare makes the indexes, once. A user that may not is no reason to write nothing: prune does
// what the index would.
func (r *recorder) prepare(ctx context.Context) error {
	if r.prepared {
		return nil
	}
	warnings, err := r.cfg.Store.PrepareHistory(ctx, r.cfg.Keep)
	for _, w := range warnings {
		r.cfg.Log.Warn().Str("problem", w).Msg("index")
	}
	if denied(err) {
		r.unindexed, err = err, nil
	}
	r.prepared = err == nil
	return err
}

func (r *recorder) wrote(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Written += int64(n)
}

// failed keeps what could not be written for the next time, or says that there will be none.
func (r *recorder) failed(left []event, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Failures++
	if denied(err) {
		r.off, r.waiting, r.held = true, nil, nil
		r.cfg.Log.Warn().Err(err).Msg("history is off for this process")
		return nil
	}
	r.waiting = append(left, r.waiting...)
	r.bound()
	return err
}

// denied reports whether the user lacks a privilege: to try again would only fill the server's log.
func denied(err error) bool {
	var e *catalog.PrivilegeError
	return errors.As(err, &e)
}

// pruneAfter is how many entries a process writes before it looks for too many: a hundredth of the
// most, but on a small history fewer looks, each of which reads it.
func (r *recorder) pruneAfter() int { return max(r.cfg.Most/100, min(r.cfg.Most/4, 250)) }

// prune deletes what is too old or too much: after the first batch, then when enough was written,
// or after some time.
func (r *recorder) prune(ctx context.Context, written int) error {
	r.unpruned += written
	now := r.cfg.Clock.Now().Mono
	if r.noPrune || r.pruned && r.unpruned < r.pruneAfter() && now-r.lastPrune < r.cfg.PruneEvery {
		return nil
	}
	r.mu.Lock()
	before := r.base.Server.Add(-r.cfg.Keep)
	r.mu.Unlock()
	_, err := r.cfg.Store.PruneHistory(ctx, before, r.cfg.Most)
	switch {
	case denied(err):
		r.noPrune = true
		r.cfg.Log.Warn().Err(err).Msg("history is not pruned by this process")
		return nil
	case err != nil:
		return err
	}
	r.pruned, r.unpruned, r.lastPrune = true, 0, now
	return nil
}
