package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// An engine is a queue without the type of its rows.
type engine struct {
	m      *distlock.Manager
	store  rows.Store
	cfg    Config
	prefix string // of the names of its locks
	locks  string // the database that they are in
	clock  clock.Clock
	log    zerolog.Logger
	limit  time.Duration // of one command

	life  context.Context // until Close
	end   context.CancelFunc
	woken chan struct{} // one element when there may be rows
	room  chan struct{} // one element when rows were finished

	entering chan struct{} // one element while a slot is taken

	claims sync.WaitGroup // calls of Claim that are under way

	background sync.WaitGroup

	mu       sync.Mutex // guards the rest
	begun    bool       // the background runs
	closed   bool
	undone   *undoing      // the end of Close; nil before
	running  chan struct{} // closed when Run ends; nil when none is under way
	now      *session
	retired  map[*session]struct{}
	inFlight int
	spread   int // how many batches of rows to choose from
	dueNext  clock.Reading
	due      bool // dueNext is set
	asides   map[string]aside
	owed     []outcome // ends of claims that the server refuses
	flying   map[*claimed]struct{}
	told     map[string]bool // odd rows and slots that were logged
	streamed bool            // a change stream wakes

	inBatches bool   // the server claims no single row here, until the next Tend
	notice    notice // of the goroutine that tends, and of Close
}

// A claimed is a row and the claim of it.
type claimed struct {
	row   rows.Row
	s     *session
	stage atomic.Int32
	tries int    // to end it; by whoever is ending it
	owed  bool   // its end is; by whoever is ending it
	leave func() // Close of the Manager need not wait for it any more; nil while a handler has it

	mu      sync.Mutex              // guards the rest
	cancel  context.CancelCauseFunc // of the handler; nil before it begins
	lost    error                   // its mark was seen to be another one
	renewed clock.Reading           // when the claim, or the last renewal that was acknowledged, was sent
}

// The stages of a claim in its process.
const (
	open   int32 = iota
	ending       // somebody is about to end it
	over
)

// reopen is deferred by a call that ends a claim: unless it is over its end is in doubt, or did
// not come because of a panic, and somebody else may end it.
func (c *claimed) reopen() { c.stage.CompareAndSwap(ending, open) }

func newEngine(ctx context.Context, m *distlock.Manager, store rows.Store, namespace string,
	cfg Config) *engine {
	e := &engine{m: m, store: store, cfg: cfg, prefix: prefix + namespace + ":" + cfg.Queue,
		locks: m.Config().Database, clock: clock.From(ctx), limit: m.Config().CommandTimeout,
		entering: make(chan struct{}, 1),
		woken:    make(chan struct{}, 1), room: make(chan struct{}, 1), retired: map[*session]struct{}{}, flying: map[*claimed]struct{}{},
		asides: map[string]aside{},
		told:   map[string]bool{}}
	e.log = cfg.Logger.With().Str("queue", cfg.Queue).Logger()
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	return e
}

// prefix begins the names of all locks of this package.
const prefix = "claim:"

// command bounds one command.
func (e *engine) command(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.limit)
}

// jittered is a pause give or take a fifth.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}

// reserve takes room for up to n rows and returns for how many there is, 0 for none.
func (e *engine) reserve(n int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n = min(n, e.cfg.InFlight-e.inFlight)
	e.inFlight += n
	return n
}

// unreserve gives room back that was not used, and wakes nobody.
func (e *engine) unreserve(n int) {
	e.mu.Lock()
	e.inFlight -= n
	e.mu.Unlock()
}

// vacate gives room back.
func (e *engine) vacate(n int) {
	e.mu.Lock()
	e.inFlight -= n
	e.mu.Unlock()
	signal(e.room)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A manner is what becomes of rows when they are claimed.
type manner int

const (
	given  manner = iota // to a caller of Claim
	begins               // each with a worker that is idle
	waits                // in the buffer, until a worker is idle: the attempt counts when it begins
)

// errAlone is returned instead of rows that would wait although the first one was rescued: its
// process died with it, and such a row is claimed alone, by a worker that begins at once.
var errAlone = errors.New("claim: the next row is one to be claimed alone")

// claim claims up to n rows, for which there is room. What it does not claim is vacated.
func (e *engine) claim(ctx context.Context, n int, as manner) (got []*claimed, err error) {
	defer func() {
		if len(got) < n {
			e.unreserve(n - len(got))
		}
	}()
	s, err := e.session(ctx)
	if err != nil {
		return nil, err
	}
	sent := e.clock.Now()
	c := s.begin(sent.Wall, e.cfg.Lease)
	c.Waiting = as == waits
	found, err := e.mark(ctx, c, n, as)
	if err == nil {
		// The slot was held when the reply was there: so it was when the rows were claimed, or they are
		// claimed by a session that is over and will be rescued.
		err = s.err()
	}
	if err != nil {
		found = nil // what was claimed nevertheless is a ghost
	}
	found = e.withoutFlying(found)
	e.restore(found)
	if s.got(c.Batch, len(found)) {
		e.leave(s)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range found {
		one := &claimed{row: row, s: s, renewed: sent}
		got = append(got, one)
		e.flying[one] = struct{}{}
	}
	return got, err
}

func (e *engine) mark(ctx context.Context, c rows.Claim, n int, as manner) ([]rows.Row, error) {
	e.mu.Lock()
	one := n == 1 && !e.inBatches
	e.mu.Unlock()
	var refused *rows.RefusedError
	if one {
		found, err := e.markOne(ctx, c)
		if found != nil {
			return []rows.Row{*found}, err
		}
		if !errors.As(err, &refused) {
			return nil, err
		}
	}
	var err error
	for range mostBatch {
		var got []rows.Row
		got, err = e.markBatch(ctx, c, n, as)
		if !errors.As(err, &refused) {
			if one && len(got) > 0 { // a sharded collection: it is not a row that is refused
				e.mu.Lock()
				e.inBatches = true
				e.mu.Unlock()
			}
			return got, err
		}
		one = false
		e.setAside(refused.Rows)
		if len(got) > 0 {
			return got, nil
		}
	}
	return nil, err
}

func (e *engine) markOne(ctx context.Context, c rows.Claim) (*rows.Row, error) {
	ctx, done := e.command(ctx)
	defer done()
	return e.store.MarkOne(ctx, c, e.without())
}

// markBatch reads candidates, claims those that are still ready, and reads which those are: three
// commands. Processes that meet at the same rows choose from more. With a *rows.RefusedError it
// returns what it has got of the others.
func (e *engine) markBatch(ctx context.Context, c rows.Claim, n int, as manner) ([]rows.Row, error) {
	ctx, done := context.WithTimeout(ctx, 3*e.limit)
	defer done()
	e.mu.Lock()
	skip := rand.IntN(e.spread+1) * n
	e.mu.Unlock()
	found, bad, err := e.store.Candidates(ctx, n, skip, e.without())
	if err == nil && skip > 0 && len(found)+len(bad) < n {
		found, bad, err = e.store.Candidates(ctx, n, 0, e.without())
	}
	e.exclude(bad)
	if err == nil && len(found) == 0 && len(bad) > 0 {
		return nil, &rows.RefusedError{} // there are others behind them
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if alone := slices.IndexFunc(found, rescued); as != given && alone >= 0 {
		if alone == 0 && as == waits {
			return nil, errAlone
		}
		found = found[:max(alone, 1)]
	}
	ids := make([]bson.RawValue, len(found))
	for i, row := range found {
		ids[i] = row.ID
	}
	var refused *rows.RefusedError
	marking := e.store.Mark(ctx, ids, c)
	if marking != nil && !errors.As(marking, &refused) {
		return nil, marking
	}
	got, err := e.store.Marked(ctx, ids, c)
	if err == nil {
		err = marking
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	const most = 32
	if len(got) < len(ids) {
		e.spread = min(2*e.spread+1, most)
	} else {
		e.spread = max(e.spread-1, 0)
	}
	return got, err
}

func rescued(row rows.Row) bool { return row.Mark.Rescued }

// tellOnce reports whether something is to be told: it has not been yet.
func (e *engine) tellOnce(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told[what] || len(e.told) >= mostInFlight {
		return false
	}
	e.told[what] = true
	return true
}

// An outcome is how a claim ends.
type outcome struct {
	c   *claimed
	end rows.Ending
}

// mostError bounds the text of an error in a row.
const mostError = 2000

// failure is the outcome of a row that failed.
func (e *engine) failure(c *claimed, cause error) outcome {
	text := "failed without a reason"
	if cause != nil {
		text = printable(cause.Error())
	}
	end := rows.Ending{To: rows.Dead, Error: text}
	if c.row.Mark.Attempts < int64(e.cfg.MaxAttempts) {
		pause := e.backoff(c.row.Mark.Attempts)
		end = rows.Ending{To: rows.Retrying, Error: text, NotBefore: e.after(pause)}
	} else {
		e.log.Error().Str("row", rows.Text(c.row.ID)).Str("error", text).Int64("attempts", c.row.Mark.Attempts).
			Msg("row is dead")
	}
	return outcome{c, end}
}

// after is the time of day after a pause, as a document keeps it.
func (e *engine) after(pause time.Duration) time.Time {
	return e.clock.Now().Wall.Add(pause).Truncate(time.Millisecond)
}

// backoff is the pause after the n'th attempt.
func (e *engine) backoff(n int64) time.Duration {
	pause := e.cfg.Backoff
	for i := int64(1); i < n && pause < e.cfg.BackoffMax; i++ {
		pause *= e.cfg.growth
	}
	return jittered(min(pause, e.cfg.BackoffMax))
}

// printable bounds a text that goes into a document.
func printable(text string) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > mostError {
		text = strings.ToValidUTF8(text[:mostError], "") + "..."
	}
	return text
}

// finish ends claims, which are at the stage ending, with one command, and returns an error for
// each, nil for those that are ended. The error of one whose end is in doubt does not match
// ErrLost; it is at the same stage still.
func (e *engine) finish(ctx context.Context, ends []outcome) []error {
	errs := make([]error, len(ends))
	endings := make([]rows.Ending, len(ends))
	for i, o := range ends {
		end := o.end
		end.ID, end.Session, end.Batch = o.c.row.ID, o.c.row.Mark.Session, o.c.row.Mark.Batch
		end.Delete = end.To == rows.Done && e.cfg.DeleteDone
		endings[i] = end
	}
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	matched, err := e.store.Finish(ctx, endings)
	refusals := e.refusals(ends, &err)
	var left []rows.Row
	if err == nil && matched < len(ends) {
		ids := make([]bson.RawValue, len(ends))
		for i, end := range endings {
			ids[i] = end.ID
		}
		left, err = e.store.Current(ctx, ids)
	}
	if err != nil {
		for i, o := range ends {
			o.c.tries++
			errs[i] = fmt.Errorf("claim: end the claim of row %s: %w", rows.Text(o.c.row.ID), err)
		}
		return errs
	}
	if matched < len(ends) {
		judge(endings, ends, left, matched, errs)
		e.unmarked(ends, left, errs)
	}
	for i, o := range ends {
		if refusal := refusals[rows.Key(o.c.row.ID)]; refusal != nil && errs[i] != nil && still(left, endings[i]) {
			errs[i] = fmt.Errorf("claim: end the claim of row %s: %w: %w", rows.Text(o.c.row.ID), errRefused, refusal)
			continue
		}
		if errs[i] == nil && endings[i].To == rows.Retrying {
			e.dueAt(endings[i].NotBefore)
		}
		e.finished(o.c)
	}
	return errs
}

// refusals are the reasons for which the server did not end some of the claims. The others it may
// have ended without counting them.
func (e *engine) refusals(ends []outcome, err *error) map[string]error {
	var refused *rows.RefusedError
	if !errors.As(*err, &refused) {
		return nil
	}
	*err = nil
	e.setAside(refused.Rows)
	reasons := map[string]error{}
	for _, one := range refused.Rows {
		reasons[rows.Key(one.ID)] = one.Err
	}
	for _, o := range ends {
		o.c.tries++
	}
	return reasons
}

// still reports whether a row is claimed as before.
func still(left []rows.Row, end rows.Ending) bool {
	return slices.ContainsFunc(left, func(row rows.Row) bool {
		return rows.Key(row.ID) == rows.Key(end.ID) && row.Mark.State == rows.Claimed && row.Mark.Batch == end.Batch
	})
}

// judge says of each row whether its claim was ended by us. A document that is gone was removed by
// us if as many are gone as the server counts.
func judge(endings []rows.Ending, ends []outcome, left []rows.Row, matched int, errs []error) {
	there := map[string]*rows.Row{}
	for i := range left {
		there[rows.Key(left[i].ID)] = &left[i]
	}
	gone, ours := 0, 0
	for _, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row == nil:
			gone++
		case row.Mark.State == end.To && row.Mark.Batch == end.Batch:
			ours++
		}
	}
	for i, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row != nil && row.Mark.State == end.To && row.Mark.Batch == end.Batch:
		case row == nil && end.Delete && (ends[i].c.tries > 0 || matched-ours >= gone):
		default:
			errs[i] = lost(ends[i].c, row)
		}
	}
}

// finished says that a row is claimed no more.
func (e *engine) finished(c *claimed) {
	c.stage.Store(over)
	e.mu.Lock()
	delete(e.flying, c)
	e.mu.Unlock()
	if c.leave != nil {
		c.leave()
	}
	if !c.owed {
		e.vacate(1)
	}
	if c.s.gone(c.row.Mark.Batch) {
		e.leave(c.s)
	}
}

// dueAt remembers when a row that failed here is due.
func (e *engine) dueAt(at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	in := clock.Reading{Wall: at, Mono: now.Mono + at.Sub(now.Wall)}
	if !e.due || in.Mono < e.dueNext.Mono {
		e.dueNext, e.due = in, true
	}
}
