package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	m       *distlock.Manager
	store   rows.Store
	cfg     Config
	prefix  string // of the names of its locks
	locks   string // the database that they are in
	clock   clock.Clock
	log     zerolog.Logger
	limit   time.Duration // of one command
	server  serverClock
	retries retries
	deaths  deaths

	life  context.Context // until Close
	end   context.CancelFunc
	woken chan struct{} // one element when there may be rows
	room  chan struct{} // one element when rows were finished

	arrivals *arrivals
	stats    *stats
	entering chan struct{} // one element while a slot is taken

	claims     sync.WaitGroup // calls of Claim that are under way
	background sync.WaitGroup

	mu       sync.Mutex // guards the rest
	begun    bool       // the background runs
	closed   bool
	undone   *undoing // the end of Close; nil before
	running  *run     // nil when none is under way
	stopped  bool     // Stop was called
	now      *session
	retired  map[*session]struct{}
	inFlight int
	spread   int // how many batches of rows to choose from
	asides   map[string]aside
	beyond   int       // so many of the first rows are passed over: asides has no room for them
	owed     []outcome // ends of claims that the server refuses
	flying   map[*claimed]struct{}
	learnt   *learning       // nil: all held keys are told by one command
	behind   []bson.RawValue // keys for which rows were claimed in vain, since the last question
	told     map[string]bool // odd rows and slots that were logged

	inBatches bool   // the server claims no single row here, until the next Tend
	notice    notice // of the goroutine that tends, and of Close
}

// A claimed is a row and the claim of it.
type claimed struct {
	row   rows.Row
	s     *session
	since time.Duration // monotonic time at which it was claimed
	stage atomic.Int32
	tries int    // to end it; by whoever is ending it
	owed  bool   // its end is; by whoever is ending it
	leave func() // Close of the Manager need not wait for it any more; nil while a handler has it

	mu      sync.Mutex              // guards the rest
	cancel  context.CancelCauseFunc // of the handler; nil before it begins
	lost    error                   // its mark was seen to be another one
	renewed clock.Reading           // when the claim was sent, or the last acknowledged renewal
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
	e := &engine{m: m, store: store, cfg: cfg, prefix: prefix + namespace + ":" + cfg.name(),
		locks: m.Config().Database, clock: clock.From(ctx), limit: m.Config().CommandTimeout,
		entering: make(chan struct{}, 1), woken: make(chan struct{}, 1), room: make(chan struct{}, 1),
		retired: map[*session]struct{}{}, flying: map[*claimed]struct{}{}, asides: map[string]aside{},
		told: map[string]bool{}}
	e.arrivals = newArrivals(e.clock, cfg.Poll)
	e.server = serverClock{own: e.clock, read: store.Now, asking: make(chan struct{}, 1)}
	if cfg.Due != "" {
		e.server.jumped = e.arrivals.plansAnew
		e.arrivals.later.now = func() time.Time { now, _ := e.server.last(); return now }
	}
	e.retries.sooner = make(chan struct{}, 1)
	e.log = cfg.Logger.With().Str("queue", cfg.Queue).Logger()
	e.stats = e.observed()
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.deaths.ctx, e.deaths.end = context.WithCancel(context.WithoutCancel(ctx))
	return e
}

// prefix begins the names of all locks of this package.
const prefix = "claim:"

// command bounds one command.
func (e *engine) command(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.limit)
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
	waits                // in the buffer, until a worker is idle
)

// errAlone is returned instead of rows that would wait although the first one was rescued: its
// process died with it, and such a row is claimed alone, by a worker that begins at once.
var errAlone = errors.New("claim: the next row is one to be claimed alone")

// claim claims up to n rows, for which there is room. What it does not claim is vacated.
func (e *engine) claim(ctx context.Context, n int, as manner) (got []*claimed, err error) {
	defer func() {
		if len(got) < n {
			e.vacate(n - len(got))
		}
	}()
	s, err := e.session(ctx)
	if err != nil {
		return nil, err
	}
	sent := e.clock.Now()
	c := s.begin(sent.Wall, e.cfg.Lease)
	c.Waiting = as != given
	found, err := e.mark(ctx, c, n, as)
	if err == nil {
		// The slot was held when the reply was there: so it was when the rows were claimed, or they are
		// claimed by a session that is over and will be rescued.
		err = s.err()
	}
	if err != nil {
		found = nil // what was claimed nevertheless is a ghost
	}
	found, out := e.withoutFlying(found)
	e.putAside(ctx, out)
	e.restore(found)
	if s.got(c.Batch, len(found)) {
		e.leave(s)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range found {
		one := &claimed{row: row, s: s, since: sent.Mono, renewed: sent}
		if row.Mark.Cancelled { // its last worker did not come to end it
			one.lost = lost(one, &row)
		}
		got = append(got, one)
		e.flying[one] = struct{}{}
	}
	return got, err
}

func (e *engine) mark(ctx context.Context, c rows.Claim, n int, as manner) (
	got []rows.Row, err error) {
	e.mu.Lock()
	one, wide := n == 1 && !e.inBatches && e.beyond == 0, 1
	e.mu.Unlock()
	var refused *rows.RefusedError
	for tries := 0; one && refused == nil && tries < fewRaces; tries++ {
		found, err := e.markOne(ctx, c)
		if found != nil {
			return []rows.Row{*found}, err
		}
		if bad := (*rows.Malformed)(nil); errors.As(err, &bad) { // a Tend gives it back
			e.exclude([]rows.Malformed{*bad})
			continue
		}
		if !e.isBehind(err) && !errors.As(err, &refused) {
			return nil, err
		}
		if e.learns() > 0 {
			break
		}
	}
	one = refused != nil
	for tries := 0; tries < mostBatch; tries++ {
		if got, err = e.markBatch(ctx, c, n, wide, as); errors.Is(err, errRace) {
			tries, err = tries+mostBatch/mostRaces, nil
			continue
		}
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
		if len(refused.Rows) == 0 {
			wide = min(2*wide, mostBatch)
		}
		if len(got) > 0 {
			return got, nil
		}
	}
	return nil, err
}

func (e *engine) markOne(ctx context.Context, c rows.Claim) (*rows.Row, error) {
	ask, asked, err := e.ask(ctx)
	if err != nil {
		return nil, err
	}
	ctx, done := e.command(ctx)
	defer done()
	found, err := e.store.MarkOne(ctx, c, ask)
	var list []rows.Row
	if found != nil {
		list = []rows.Row{*found}
	}
	e.arrivals.answered(asked, list, found == nil && err == nil)
	return found, err
}

// errRace is returned instead of rows that all went to others, although there may be more.
var errRace = errors.New("claim: other processes were faster")

// mostRaces is how many are lost one after the other until the process pauses, and fewRaces how
// many until it reads candidates to choose from.
const (
	mostRaces = 64
	fewRaces  = 3
)

// markBatch reads candidates, claims those that are still ready, and reads which those are: three
// commands. Processes that meet at the same rows choose from more. With a *rows.RefusedError it
// returns what it has got of the others; without rows it means that all of those were malformed,
// and the next one is to read more: so many times as many.
func (e *engine) markBatch(ctx context.Context, c rows.Claim, n, wide int, as manner) (
	got []rows.Row, err error) {
	ask, asked, err := e.ask(ctx)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, 3*e.limit)
	defer done()
	e.mu.Lock()
	spread, base := e.spread, e.beyond
	skip := base + upTo(e.clock, spread)*n
	e.mu.Unlock()
	all := false // there are no other rows
	defer func() { e.arrivals.answered(asked, got, all && err == nil) }()
	limit := min(n*wide, mostBatch)
	if e.cfg.Key != "" { // no row is skipped before another one of its key
		if limit, skip = max(limit, crowd*n*(spread+1)), base; asked.short {
			limit = max(limit, e.learns())
		}
	}
	found, bad, err := e.store.Candidates(ctx, limit, skip, ask)
	if err == nil && skip > base && len(found)+len(bad) < n {
		e.arrivals.answered(asked, nil, false)
		asked, skip = e.arrivals.asks(), base
		asked.due = ask.Due
		found, bad, err = e.store.Candidates(ctx, limit, skip, ask)
	}
	e.exclude(bad)
	e.passOver(base, len(bad))
	if err == nil && len(found) == 0 && len(bad) > 0 {
		return nil, &rows.RefusedError{} // there are others behind them
	}
	all = skip == base && len(found)+len(bad) < limit
	if err == nil && asked.short && len(found)+len(ask.Behind) > 0 {
		var full bool
		found, full, err = e.free(ctx, found, ask.Behind)
		if err == nil && len(found) == 0 && !all && !full {
			e.lookOn()
			return nil, errRace // there may be some behind them
		}
		all = all || full
	}
	if e.cfg.Key != "" {
		found, all = e.firsts(found, n, spread), all && len(found) == 0
	} else if len(found) > n {
		found, all = found[:n], false
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if alone := slices.IndexFunc(found, rescued); alone >= 0 {
		if alone == 0 && as == waits {
			return nil, errAlone
		}
		all = all && len(found) == max(alone, 1)
		found = found[:max(alone, 1)]
	}
	ids := idsOf(found)
	var refused *rows.RefusedError
	marking := e.store.Mark(ctx, ids, c)
	if marking != nil && !errors.As(marking, &refused) {
		return nil, marking
	}
	if refused != nil {
		e.passOver(base, len(refused.Rows))
	}
	got, err = e.store.Marked(ctx, ids, c)
	if err == nil {
		err = marking
	}
	e.lostTo(found, got)
	e.mu.Lock()
	defer e.mu.Unlock()
	const most = 32
	if len(got) < len(ids) {
		e.spread = min(2*e.spread+1, most)
	} else {
		e.spread = max(e.spread-1, 0)
	}
	if err == nil && len(got) == 0 && !all {
		err = errRace
	}
	return got, err
}

func idsOf(these []rows.Row) (ids []bson.RawValue) {
	for _, row := range these {
		ids = append(ids, row.ID)
	}
	return ids
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

// finish ends claims, which are at the stage ending, with one command, and returns an error for
// each, nil for those that are ended. The error of one whose end is in doubt does not match
// ErrLost; it is at the same stage still.
func (e *engine) finish(ctx context.Context, ends []outcome) []error {
	errs := make([]error, len(ends))
	endings := make([]rows.Ending, len(ends))
	now := e.wall() // one for all: those that end alike are one statement
	for i, o := range ends {
		end := o.c.unlessCancelled(o.end)
		end.At = now
		end.ID, end.Session, end.Batch = o.c.row.ID, o.c.row.Mark.Session, o.c.row.Mark.Batch
		end.Delete = end.To == rows.Done && e.cfg.DeleteDone
		endings[i] = end
	}
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	undone := func(err error) []error {
		for i, o := range ends {
			errs[i] = notEnded(o, err)
		}
		return errs
	}
	if err := e.putOff(ctx, endings); err != nil {
		return undone(err) // nothing was sent
	}
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
		for _, o := range ends {
			o.c.tries++
		}
		return undone(err)
	}
	if matched < len(ends) {
		judge(endings, ends, left, matched, errs)
		e.unmarked(ends, left, errs)
	}
	for i, o := range ends {
		if row := cancelledNow(left, endings[i]); row != nil {
			o.c.lose(lost(o.c, row))
			if errs[i] = e.finish(ctx, []outcome{o})[0]; errors.Is(errs[i], ErrCancelled) {
				errs[i] = nil // the claim has ended, and its worker did not know
			}
			continue
		}
		refusal := refusals[rows.Key(o.c.row.ID)]
		if refusal != nil && errs[i] != nil && still(left, endings[i]) != nil {
			errs[i] = notEnded(o, fmt.Errorf("%w: %w", errRefused, refusal))
			if short, is := o.shortened(); is {
				if errs[i] = e.finish(ctx, []outcome{short})[0]; errs[i] == nil {
					e.restore([]rows.Row{o.c.row})
				}
			}
			continue
		}
		if errs[i] == nil && endings[i].To == rows.Retrying {
			e.retries.add(endings[i].NotBefore)
		}
		if errs[i] == nil && wasDead(endings[i], left) {
			e.died(deadBy(o.c, endings[i]))
		}
		e.stats.ended(endings[i], errs[i])
		if errs[i] == nil && endings[i].Error == rows.Cancelled {
			errs[i] = o.c.lostMark()
		}
		e.finished(o.c)
	}
	return errs
}

func notEnded(o outcome, err error) error {
	return fmt.Errorf("claim: end the claim of row %s: %w", rows.Text(o.c.row.ID), err)
}

// finished says that a row is claimed no more.
func (e *engine) finished(c *claimed) {
	c.stage.Store(over)
	e.mu.Lock()
	delete(e.flying, c)
	e.unlearn(c)
	e.mu.Unlock()
	if e.arrivals.isWaited() {
		signal(e.woken)
	}
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
