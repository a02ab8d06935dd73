package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// A Queue is the rows of one collection, for one process. T is what their documents decode into;
// what it does not name stays in the document. Safe for concurrent use. Add and Insert belong to a
// transaction that their context carries; every other call is carried out when it returns.
type Queue[T any] struct{ e *engine }

// Counts are the rows of a queue by state. One whose field cannot be understood may count as ready,
// or not at all.
type Counts struct {
	Ready, Claimed, Retrying, Dead, Done int64
	// Refused is how many of them this process has set aside because the server refuses to change
	// them, by a validator or by their size. They are tried again after a minute, or up to an hour.
	Refused int64
	// Later are ready and not due yet, or without a date, see [Config.Due]. Ready leaves them out.
	Later int64
}

// New checks the configuration and makes sure of the indexes: {claim.state, claim.notBefore}, and,
// with Due or Sort, {claim.state, Due, ...Sort}, and with KeepDone {claim.doneAt}; with Key that of
// Due and Sort with _id at its end, and of the rows that hold their key the unique {Key,
// claim.holds} and {claim.holds, claim.state, Key}; and a partial one of the claimed rows, by slot.
// Three commands when they are there. Documents that are no rows are read past: with many of them
// give the collection an index of your own on Filter's fields and claim.state. Nothing runs in the
// background before the first row is claimed. Close the queue before the Manager.
//
// The Manager's database may be on another server than the collection.
//
// Errors: a *ConfigError with every contradiction, or because the server cannot have chains; a
// *distlock.PrivilegeError that names the missing privilege, with the command that creates the
// index for somebody who may; ErrConfig when the server, asked once, refuses Filter or Sort.
func New[T any](ctx context.Context, m *distlock.Manager, coll *mongo.Collection,
	cfg Config) (*Queue[T], error) {
	cfg = cfg.withDefaults()
	var list []string
	if ctx == nil {
		list = append(list, noContext)
	}
	if m == nil {
		list = append(list, "the Manager is nil")
	} else if limit := m.Config().CommandTimeout; cfg.Lease > 0 && cfg.Lease < 3*limit {
		list = append(list, fmt.Sprintf("Lease is %v, shorter than three commands may take "+
			"(CommandTimeout %v): a row could not be renewed in time", cfg.Lease, limit))
	}
	if !structured[T]() {
		list = append(list, fmt.Sprintf("rows are %v, must be structs, maps or documents",
			reflect.TypeFor[T]()))
	}
	store, err := opened(coll, cfg, list...)
	if err != nil {
		return nil, err
	}
	q := onStore[T](ctx, m, store, coll.Database().Name()+"."+coll.Name(), cfg)
	preparing, done := context.WithTimeout(ctx, 4*q.e.limit)
	defer done()
	if err := store.Prepare(preparing); err != nil {
		return nil, badKey(err)
	}
	if _, _, err := store.Candidates(preparing, 1, 0, nil); err != nil {
		if refused := badQuery(err); errors.Is(refused, ErrConfig) {
			return nil, refused
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	return q, nil
}

// Run claims rows and gives each to handle, Workers at a time, until ctx ends; then it gives back
// what was not begun, and returns when all handlers have. That is the hard stop, [Queue.Stop] a
// soft one. It returns nil then, an error when going on is hopeless: a missing privilege, a closed
// Manager, a query that the server refuses. One Run at a time.
//
// The handler's context ends with ctx, after Config.Timeout, and when the process loses its slot.
// What handle returns ends the claim: nil is done, an error is a failure, as is a panic, and an
// error after its context has ended gives the row back, but for Config.Timeout, which is a failure.
// [Snooze], [Discard] and [RetryAfter] are errors that say more. A handler may end the claim itself
// before. Return from it when its context ends: Run waits.
func (q *Queue[T]) Run(ctx context.Context,
	handle func(ctx context.Context, row *Row[T]) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if handle == nil {
		return &ConfigError{Problems: []string{"the handler is nil"}}
	}
	return q.e.run(ctx, func(ctx context.Context, c *claimed) error {
		row, err := q.decode(c)
		if err != nil {
			return err
		}
		return handle(ctx, row)
	})
}

// decode survives what the type of the rows does.
func (q *Queue[T]) decode(c *claimed) (row *Row[T], err error) {
	row = &Row[T]{e: q.e, c: c}
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("decode the document: %w", &PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	if err := bson.Unmarshal(c.row.Doc, &row.Doc); err != nil {
		return nil, fmt.Errorf("decode the document: %w", err)
	}
	return row, nil
}

// Claim claims up to n rows and returns those it got, none when none is ready. It claims no more
// than InFlight at a time: rows count until their claim is ended. A document that does not decode
// into T fails and is left out. A row that was rescued comes alone, so that one with which
// processes die takes no others along. One command for one row; three, or four, for several.
//
// Errors: ErrInFlight when there is no room for any; what TryLock returns when the process cannot
// have a slot; a *distlock.LostError when it lost it meanwhile; *distlock.PrivilegeError;
// ErrClosed. What may have been claimed then is given back in the background.
func (q *Queue[T]) Claim(ctx context.Context, n int) ([]*Row[T], error) {
	if err := usable(ctx); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("claim: %d rows asked for, must be at least 1", n)
	}
	if err := q.e.begin(func() error { q.e.claims.Add(1); return nil }); err != nil {
		return nil, err
	}
	defer q.e.claims.Done()
	if n = q.e.reserve(min(n, mostBatch)); n <= 0 {
		return nil, ErrInFlight
	}
	got, err := q.e.claim(ctx, n, given)
	if err != nil {
		return nil, err
	}
	var list []*Row[T]
	for _, c := range got {
		row, err := q.decode(c)
		if err = cmp.Or(err, c.lostMark()); err != nil { // a row that was cancelled is dead by that
			if err := q.e.endOne(ctx, q.e.failure(c, err)); err != nil && !errors.Is(err, ErrLost) {
				q.e.finished(c) // the background gives it back
			}
			continue
		}
		list = append(list, row)
	}
	return list, nil
}

// Add inserts documents, one command, and wakes this process when they are due. Called with the
// context of DoneWith it belongs to that transaction. With Config.Key it refuses all of them when
// one has a list in that field.
func (q *Queue[T]) Add(ctx context.Context, docs ...T) error {
	if len(docs) == 0 {
		return nil
	}
	list := make([]any, len(docs))
	for i, doc := range docs {
		list[i] = doc
	}
	if err := q.e.oneKey(list...); err != nil {
		return fmt.Errorf("claim: add rows: %w", err)
	}
	err := q.e.store.Insert(ctx, list)
	if err == nil {
		q.e.added(list)
	}
	return err
}

// Counts counts the rows. Five commands, each by an index; with Due two more.
func (q *Queue[T]) Counts(ctx context.Context) (Counts, error) {
	if err := usable(ctx); err != nil {
		return Counts{}, err
	}
	ctx, done := context.WithTimeout(ctx, 7*q.e.limit)
	defer done()
	c, err := q.e.store.Count(ctx)
	c.Refused, _ = q.e.refused()
	return Counts(c), err
}

// Count counts the rows of a queue without a Manager, as Counts does; of cfg it uses Filter,
// Due and Field. No bound but ctx.
func Count(ctx context.Context, coll *mongo.Collection, cfg Config) (Counts, error) {
	queue, err := opened(coll, cfg)
	if err != nil {
		return Counts{}, err
	}
	c, err := queue.Count(ctx)
	return Counts(c), err
}

// Close ends Run and waits for its handlers as long as ctx lasts, gives back every row that this
// process still has claimed, and frees the slot. Rows of Claim are given back, too: stop working on
// them before. A ctx that has ended gives it one command's time for that.
//
// When ctx ends first its error is returned. What is being given back goes on in the background.
// While handlers still run the slot is kept, and with it their rows, until Close is called again.
// Close of the Manager waits for handlers, too, and leaves the rows of those that run on after its
// context to the takeover. A handler, or OnDead, that waits for either waits for itself.
func (q *Queue[T]) Close(ctx context.Context) error { return q.e.close(ctx) }

func (e *engine) close(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	e.closed = true
	running := e.running
	e.mu.Unlock()
	e.end()
	if running != nil {
		select {
		case <-running.ended:
		case <-ctx.Done():
			return fmt.Errorf("claim: handlers still run: %w", context.Cause(ctx))
		}
	}
	ctx, done := e.givingBack(ctx)
	defer done()
	e.mu.Lock()
	if e.undone == nil {
		e.undone = &undoing{done: make(chan struct{})}
		go e.undo(context.WithoutCancel(ctx), e.undone)
	}
	u := e.undone
	e.mu.Unlock()
	select {
	case <-u.done:
		return u.err
	case <-ctx.Done():
		e.deaths.end()
		return fmt.Errorf("claim: rows are still being given back: %w", context.Cause(ctx))
	}
}

// givingBack returns the context for giving rows back: ctx, and if that has ended already one that
// lasts for one command.
func (e *engine) givingBack(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return e.command(context.WithoutCancel(ctx))
}

// An undoing is the end of a queue: it goes on when a Close has ended; the next waits for it.
type undoing struct {
	done chan struct{}
	err  error // read it when done is closed
}

func (e *engine) undo(ctx context.Context, u *undoing) {
	defer close(u.done)
	e.stats.stop()
	e.background.Wait()
	e.claims.Wait()
	e.mu.Lock()
	sessions := make([]*session, 0, len(e.retired)+1)
	for s := range e.retired {
		sessions = append(sessions, s)
	}
	if e.now != nil {
		sessions = append(sessions, e.now)
	}
	e.now, e.retired = nil, map[*session]struct{}{}
	e.mu.Unlock()
	if e.notice.guard != nil {
		e.release(&session{guard: e.notice.guard, slot: e.slot(e.prefix + ":refused")})
	}
	for _, s := range sessions {
		limited, done := e.command(ctx)
		_, err := e.store.GiveBack(limited, s.guard.Session(), nil)
		if err = e.tidied(0, err); err != nil && u.err == nil {
			u.err = fmt.Errorf("claim: give rows back, others will rescue them: %w", err)
		}
		done()
		e.release(s)
	}
	e.deaths.told()
	e.deaths.end()
}

// onStore is a queue over any store.
func onStore[T any](ctx context.Context, m *distlock.Manager, store rows.Store, namespace string,
	cfg Config) *Queue[T] {
	return &Queue[T]{e: newEngine(ctx, m, store, namespace, cfg)}
}

// mostKey bounds a key of Insert, as old servers bound what an index has.
const mostKey = 900

// Insert adds a document unless there is one with this key, and reports whether it did: so whoever
// asks for the same work twice has it once. A key belongs to the collection and [Config.Field]; it
// is taken as long as its document is there, done or not: with Config.DeleteDone until the row is
// done, with Config.KeepDone for so long after it was, else for ever; a handler that replaces its
// document frees it. At most 900 bytes. Called with the context of DoneWith it belongs to that
// transaction.
//
// One command, and at the first call of a process two more for a unique index on claim.unique;
// in DoneWith that begins the transaction anew.
// A sharded collection can have that only where its shard key begins with it.
//
// Errors: of a list in the field of Config.Key; a *distlock.PrivilegeError; those of the driver,
// then the document may be there: ask again.
func (q *Queue[T]) Insert(ctx context.Context, key string, doc T) (inserted bool, err error) {
	if err := usable(ctx); err != nil {
		return false, err
	}
	if key == "" || len(key) > mostKey || !utf8.ValidString(key) {
		return false, fmt.Errorf("claim: insert a row: the key must be UTF-8 of 1 to %d bytes", mostKey)
	}
	if err = q.e.oneKey(doc); err == nil {
		inserted, err = q.e.store.InsertUnique(ctx, key, doc)
	}
	if err != nil {
		return false, fmt.Errorf("claim: insert a row with the key %q: %w", key, err)
	}
	if inserted {
		signal(q.e.woken)
	}
	return inserted, nil
}

// Stop ends Run softly, as a program should that is told to end: no more rows are claimed, those
// that wait for a worker are given back at once, and handlers that have begun may end as long as
// ctx lasts. Then their contexts end, too. Run returns nil when all have returned, as after its own
// context has ended, which is the hard stop. A Run that comes later returns at once; Claim is not
// concerned. Do not wait for Stop in a handler.
//
// It returns nil when Run has ended before ctx has, and else an error that matches the cause of
// ctx: then Run may still wait for handlers that do not mind their contexts.
func (q *Queue[T]) Stop(ctx context.Context) error { return q.e.stop(ctx) }

func (e *engine) stop(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	e.stopped = true
	r := e.running
	e.mu.Unlock()
	if r == nil {
		return nil
	}
	r.soft()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.ended:
		return nil
	default:
	}
	err := fmt.Errorf("claim: handlers still ran when Stop's context ended: %w", context.Cause(ctx))
	r.stop(err)
	return err
}
