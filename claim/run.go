package claim

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
	"mongodlm/internal/rows"
)

// mostFeeders is how many claims of single rows are under way at a time.
const mostFeeders = 8

// failurePause is the pause after a claim that failed, if Poll is not shorter.
const failurePause = time.Second

// linger is how long a completion waits for others of its batch.
const linger = 5 * time.Millisecond

// locks is what distlock does for those who run functions under its locks.
var locks = leading.Of[*distlock.DistributedLock, *distlock.TryGuard, *distlock.LockInfo]()

// A run is one call of Run.
type run struct {
	e        *engine
	ctx      context.Context // ends when no more rows are to be claimed, by Stop or with hard
	soft     context.CancelFunc
	hard     context.Context // ends when handlers are to end
	stop     context.CancelCauseFunc
	ended    chan struct{} // closed when Run ends
	handle   func(context.Context, *claimed) error
	todo     *buffer
	ends     chan outcome  // what is to be completed in batches
	more     chan struct{} // one element for a further feeder: there are rows
	failed   atomic.Int32  // tries to end claims that had no answer after hard had ended
	suspects chan struct{} // one element while one of them is worked on
}

// mostFailed is how many of them there may be until the rest is left to the background.
const mostFailed = 4

// run runs handlers until ctx ends.
func (e *engine) run(ctx context.Context, handle func(context.Context, *claimed) error) error {
	r := &run{e: e, handle: handle, todo: newBuffer(e), ended: make(chan struct{}),
		ends: make(chan outcome, e.cfg.InFlight), more: make(chan struct{}, 1),
		suspects: make(chan struct{}, 1)}
	r.hard, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	r.ctx, r.soft = context.WithCancel(r.hard)
	defer r.soft()
	err := e.begin(func() error {
		if e.running != nil {
			return ErrRunning
		}
		e.running = r
		if e.stopped {
			r.soft()
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() {
		e.mu.Lock()
		e.running = nil
		e.mu.Unlock()
		close(r.ended)
	}()
	defer context.AfterFunc(e.life, func() { r.stop(nil) })()

	var feeders, workers, completer, airing sync.WaitGroup
	feeders.Go(func() { r.feed(true) })
	if e.cfg.Batch == 1 && e.cfg.Key == "" { // several of one process would meet at the same key
		for range min(mostFeeders, e.cfg.Workers) - 1 {
			feeders.Go(func() { r.feed(false) })
		}
	}
	for range e.cfg.Workers {
		workers.Go(r.work)
	}
	completer.Go(r.complete)
	airing.Go(r.air)
	feeders.Wait()
	r.giveBack(r.todo.close())
	workers.Wait()
	airing.Wait()
	close(r.ends)
	completer.Wait()
	if cause := context.Cause(r.hard); ctx.Err() == nil && hopeless(cause) {
		return badQuery(cause)
	}
	return nil
}

// hopeless reports whether an error will not go away by waiting.
func hopeless(err error) bool {
	var denied *distlock.PrivilegeError
	var query *rows.QueryError
	return errors.Is(err, distlock.ErrClosed) || errors.As(err, &denied) || errors.As(err, &query)
}

// feed claims rows as long as they are wanted and there may be some. The first of several looks for
// rows when there are none.
func (r *run) feed(first bool) {
	e, why := r.e, working
	for r.ctx.Err() == nil {
		if !first && !r.wait(r.more) {
			return
		}
		if why == working && e.arrivals.nothing() {
			if !first {
				continue
			}
			why = e.await(r.ctx)
		}
		n, begin := r.todo.reserve()
		if n == 0 {
			if first && !r.wait(e.room) {
				return
			}
			why = working
			continue
		}
		as := waits
		if begin {
			as = begins
		}
		got, err := e.claim(r.ctx, n, as)
		r.todo.put(got, n)
		if err == nil {
			e.arrivals.learned(why, len(got) > 0)
		}
		why = working
		switch {
		case errors.Is(err, errAlone):
			r.todo.keepAlone()
		case len(got) > 0:
			signal(r.more)
		case err != nil:
			if !r.goesOn(err) {
				return
			}
		case first:
			why = e.await(r.ctx)
		}
	}
}

// wait waits for a signal, or for the end.
func (r *run) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// goesOn tells of an error of claiming, and waits. False when the error is hopeless.
func (r *run) goesOn(err error) bool {
	if r.ctx.Err() != nil {
		return false
	}
	if hopeless(err) {
		r.stop(err)
		return false
	}
	r.e.log.Warn().Err(err).Msg("claiming rows failed")
	return clock.Sleep(r.e.clock, jittered(r.e.clock, min(r.e.cfg.Poll, failurePause)), r.ctx.Done())
}

// work handles rows one after the other.
func (r *run) work() {
	for c := r.todo.next(); c != nil; c = r.todo.next() {
		r.todo.idle(r.workOn(c))
	}
}

// air gives back what has waited for a worker for half of its lease: the attempt does not count.
func (r *run) air() {
	e := r.e
	for e.cfg.Lease > 0 && clock.Sleep(e.clock, e.cfg.Lease/airings, r.ctx.Done()) {
		r.giveBack(r.todo.stale())
	}
}

// giveBack gives rows back that no handler has begun.
func (r *run) giveBack(these []*claimed) {
	var back []outcome
	for _, c := range these {
		if c.stage.CompareAndSwap(open, ending) {
			back = append(back, outcome{c, rows.Ending{To: rows.Ready}})
		}
	}
	if len(back) > 0 {
		r.end(back)
	}
}

// handled runs the handler and says how the claim ends, and how long the handler ran.
func (r *run) handled(c *claimed) (o outcome, took time.Duration) {
	back := outcome{c, rows.Ending{To: rows.Ready}}
	guard := c.s.guard
	ctx, cancel := context.WithCancelCause(r.hard)
	defer cancel(nil)
	defer context.AfterFunc(guard.Context(), func() { cancel(context.Cause(guard.Context())) })()
	if r.ctx.Err() != nil || guard.Err() != nil || r.e.leaseErr(c) != nil || c.lostMark() != nil {
		return back, 0
	}
	if m := c.row.Mark; m.Attempts > int64(r.e.cfg.MaxAttempts) {
		why := cmp.Or(m.Error, noReason) // MaxAttempts was lowered
		if m.Rescued {                   // by another queue
			why = rows.GivenUp
		}
		return r.e.failure(c, errors.New(why)), 0
	}
	err := r.e.beginLate(ctx, c)
	if err == nil {
		err = guard.Err() // it may have stopped meanwhile
	}
	if err != nil {
		r.e.log.Warn().Err(err).Msg("a row that waited was not begun")
		return back, 0
	}
	c.begun(cancel)
	defer r.e.endWithLease(ctx, c, cancel)()
	begun := r.e.clock.Now().Mono
	handling, end := r.e.timed(ctx)
	defer end()
	err = r.safely(handling, c)
	took = max(r.e.clock.Now().Mono-begun, 1)
	late := timedOut(handling, err)
	switch {
	case err == nil:
		return outcome{c, rows.Ending{To: rows.Done}}, took
	case late != nil:
		err = late
	case (ctx.Err() != nil || guard.Err() != nil) && r.e.leaseErr(c) == nil && !wished(err).free:
		return back, took
	}
	return r.e.failure(c, err), took
}

// safely turns what is not a return into an error: a panic, and runtime.Goexit, which would end the
// worker.
func (r *run) safely(ctx context.Context, c *claimed) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the handler ended its goroutine")
		defer func() {
			if value := recover(); value != nil {
				p := &PanicError{Value: value, Stack: debug.Stack()}
				r.e.log.Error().Err(p).Str("row", rows.Text(c.row.ID)).Bytes("stack", p.Stack).
					Msg("handler panicked")
				err = p
			}
			done <- err
		}()
		err = leading.Asked(r.handle(ctx, c))
	}()
	return <-done
}

// complete ends claims in batches: as many as are there, when the batch is full, nothing else is in
// flight, or the first has waited long enough.
func (r *run) complete() {
	e := r.e
	for first := range r.ends {
		batch := []outcome{first}
		t := e.clock.NewTimer(linger)
	collect:
		for len(batch) < e.cfg.Batch && !r.alone(len(batch)) {
			select {
			case o, ok := <-r.ends:
				if !ok {
					break collect
				}
				batch = append(batch, o)
			case <-t.C():
				break collect
			}
		}
		t.Stop()
		r.end(batch)
		r.todo.ends(-len(batch))
	}
}

func (r *run) alone(n int) bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.e.inFlight == n
}

// end ends claims, and does not give up while the slot is held: the rows would stay claimed as long
// as this process lives. When Run is to end it gives up after a few tries: what no call knows of
// any more is given back in the background.
func (r *run) end(ends []outcome) {
	e := r.e
	ctx := context.WithoutCancel(r.hard)
	pause, told := 100*time.Millisecond, false
	for {
		if r.hard.Err() != nil && r.failed.Load() >= mostFailed {
			e.log.Warn().Int("rows", len(ends)).Msg("the end of claims is left to the background")
			for _, o := range ends {
				e.finished(o.c)
			}
			return
		}
		var again []outcome
		var failed error
		for i, err := range e.finish(ctx, ends) {
			o := ends[i]
			switch {
			case err == nil:
				if o.end.To == rows.Ready {
					signal(e.woken)
				}
			case errors.Is(err, ErrLost):
				e.log.Warn().Err(err).Msg("a row was lost before it was finished")
			case o.c.s.err() != nil:
				e.log.Warn().Err(err).Msg("the end of a claim is left to those who rescue rows")
				e.finished(o.c)
			case errors.Is(err, errRefused):
				e.owe(o)
			default:
				again, failed = append(again, o), err
			}
		}
		if len(again) == 0 {
			return
		}
		if !told {
			e.log.Warn().Err(failed).Int("rows", len(again)).Msg("ending claims failed")
		}
		told = true
		if hopeless(failed) {
			r.stop(failed)
		}
		if r.hard.Err() != nil {
			r.failed.Add(1)
		}
		ends = again
		clock.Sleep(e.clock, jittered(e.clock, pause), nil)
		pause = min(2*pause, e.limit)
	}
}

// suspect reports whether a row may be the one that kills its processes: it was begun before, and
// one of them has died. After the first death none is: so the rows of a process that was killed by
// a hand are worked on as any others.
func suspect(row rows.Row) bool { return row.Mark.Rescued && row.Mark.Attempts > 1 }

// workOn has a row handled and its claim ended, and returns how long the handler ran. Of suspects a
// process works on one at a time: the one that kills takes no other one's attempt with it. Another
// is left to other processes, or to later, when that one takes longer than a Poll.
func (r *run) workOn(c *claimed) (took time.Duration) {
	leave := locks.Use(c.s.guard) // until its claim is ended, so that the row is not done twice
	var o outcome
	switch {
	case !suspect(c.row):
		o, took = r.handled(c)
	case r.suspectAlone():
		defer func() { <-r.suspects }()
		o, took = r.handled(c)
	default:
		pause := r.e.backoff(c.row.Mark.Attempts)
		o = outcome{c, rows.Ending{To: rows.Retrying, Uncounted: true, Pause: pause}}
	}
	r.e.stats.handled(took)
	if !c.stage.CompareAndSwap(open, ending) { // the handler has ended it
		leave()
		return took
	}
	c.leave = leave
	switch {
	case r.e.cfg.Batch > 1 && !rescued(c.row): // one that was is ended before the next begins
		r.todo.ends(1)
		r.ends <- o
	default:
		r.end([]outcome{o})
	}
	return took
}

// suspectAlone waits for its turn among the suspects, a Poll or a second at most.
func (r *run) suspectAlone() bool {
	select {
	case r.suspects <- struct{}{}:
		return true
	default:
	}
	t := r.e.clock.NewTimer(min(r.e.cfg.Poll, failurePause))
	defer t.Stop()
	select {
	case r.suspects <- struct{}{}:
		return true
	case <-t.C():
	case <-r.ctx.Done():
	}
	return false
}
