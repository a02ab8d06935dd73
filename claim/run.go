package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

// mostAsking is the maximum number of claims that the workers of a process send at the same time
// while rows are ready.
const mostAsking = 8

// A run is one call of Run or Serve.
type run struct {
	e      *engine
	ctx    context.Context // ends when the run must claim no more rows
	hard   context.Context // ends when the handlers must end
	stop   context.CancelCauseFunc
	ended  chan struct{} // closed at the end of the run
	handle func(context.Context, *claimed) error
	busy   chan struct{} // has an element for each claim of a worker that has just handled a row
	idle   chan struct{} // has an element while another worker waits for a row and claims it
}

// begin registers a run. Before the first run, it starts the background goroutines. If no run can
// begin, it returns ErrClosed or ErrRunning. Otherwise the caller must call wait.
func (e *engine) begin(handle func(context.Context, *claimed) error) (*run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing != nil:
		return nil, ErrClosed
	case e.running != nil:
		return nil, ErrRunning
	}
	asking := mostAsking
	if e.cfg.Key != "" {
		asking = 1 // concurrent claims would select the same row
	}
	e.running = &run{e: e, handle: handle, ended: make(chan struct{}),
		busy: make(chan struct{}, asking), idle: make(chan struct{}, 1)}
	if !e.begun {
		e.begun = true
		e.background.Go(e.tend)
		e.background.Go(e.wakeDue)
		e.background.Go(e.rescue)
		e.background.Go(e.listen)
	}
	return e.running, nil
}

// wait runs handlers until ctx ends. The contexts of the handlers end when hard ends.
func (r *run) wait(ctx, hard context.Context) error {
	e := r.e
	defer func() {
		e.mu.Lock()
		e.running = nil
		e.mu.Unlock()
		close(r.ended)
	}()
	r.hard, r.stop = context.WithCancelCause(rows.Alone(hard))
	defer r.stop(nil)
	soft, end := context.WithCancel(ctx)
	defer end()
	r.ctx = soft
	defer context.AfterFunc(r.hard, end)()
	defer context.AfterFunc(e.life, func() { r.stop(ErrClosed) })()
	var workers sync.WaitGroup
	for range e.cfg.Workers {
		workers.Go(func() {
			for c := r.next(idle); c != nil; c = r.next(working) {
				r.workOn(c)
			}
		})
	}
	workers.Wait()
	if cause := context.Cause(r.hard); ctx.Err() == nil && e.life.Err() == nil && hopeless(cause) {
		return badQuery(cause)
	}
	return nil
}

// next claims a row for a worker. It returns nil when the run ends. While no row is ready, or after
// an error, only one worker of the run sends claims.
func (r *run) next(why reason) (c *claimed) {
	for c == nil && r.ctx.Err() == nil {
		turn := r.busy
		if r.e.arrivals.knows() {
			why = idle
		}
		if why != working {
			turn = r.idle
		}
		select {
		case turn <- struct{}{}:
			c, why = r.ask(why)
			<-turn
		case <-r.ctx.Done():
		}
	}
	return c
}

// ask claims a row. For the reason idle, it first waits until a row may be ready. If it claims no
// row, it returns the reason for the worker's next call.
func (r *run) ask(why reason) (*claimed, reason) {
	e := r.e
	if !e.pace.wait(r.ctx.Done()) {
		return nil, failed
	}
	if why == idle {
		if why = e.await(r.ctx); r.ctx.Err() != nil {
			return nil, failed
		}
	}
	if e.isPaused() {
		clock.Sleep(e.clock, jittered(e.clock, tendEvery), r.ctx.Done())
		return nil, failed
	}
	c, err := e.claim(why)
	switch {
	case err == nil:
		return c, idle
	case hopeless(err):
		r.stop(err)
		<-r.ctx.Done()
	default:
		e.log.Warn().Err(err).Dur("pause", e.pace.now()).Msg("claiming rows failed")
		if e.pace.now() == 0 {
			clock.Sleep(e.clock, pollEvery, r.ctx.Done())
		}
	}
	return nil, failed
}

func (r *run) workOn(c *claimed) {
	// The Manager must not release the slot before the end is recorded. Otherwise another process
	// could repeat the work.
	defer r.e.m.Internal(leading.Key{}).Use(c.guard)()
	if end, pause := r.handled(c); end.To != "" {
		r.e.record(c, end, pause, false)
	} else {
		r.e.finished(c)
	}
}

// handled calls the handler and returns the end of the claim, and the pause before a retry. If
// DoneWith has recorded the end, the result is zero.
func (r *run) handled(c *claimed) (end rows.Ending, pause time.Duration) {
	e, guard := r.e, c.guard
	ctx, cancel := context.WithCancelCause(r.hard)
	defer cancel(nil)
	defer context.AfterFunc(guard.Context(), func() { cancel(context.Cause(guard.Context())) })()
	if r.ctx.Err() != nil || guard.Err() != nil {
		return c.row.Uncounted(rows.Ready), 0
	}
	handling, stop := e.timed(ctx)
	defer stop()
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	defer context.AfterFunc(handling, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopped = max(e.clock.Now().Mono, 1)
	})()
	began := e.clock.Now().Mono
	err := r.safely(handling, c)
	took := e.clock.Now().Mono - began
	defer func() { e.report(metrics.HandlerTime, took.Seconds()) }() // last: the Observer may be slow
	why := context.Cause(handling)
	late := errors.Is(why, ErrTimeout)
	cancel(errReturned)
	done, failed := c.finishedWork()
	switch err = cmp.Or(err, failed); {
	case done:
		return rows.Ending{}, 0
	case err == nil:
		return c.row.End(rows.Done), 0
	case late && wished(err).err == nil && !errors.Is(err, ErrTimeout):
		err = fmt.Errorf("%w: %w", why, err)
	case !late && (r.hard.Err() != nil || guard.Err() != nil) && !wished(err).free:
		return c.row.Uncounted(rows.Ready), 0
	}
	return e.failure(c, err)
}

var errReturned = errors.New("claim: the handler has returned")

// finishedWork returns the result of DoneWith. If a call of DoneWith still runs in a goroutine,
// finishedWork ends the context of that call and waits for its end.
func (c *claimed) finishedWork() (done bool, failed error) {
	c.mu.Lock()
	c.returned = true
	if c.stopWork != nil {
		c.stopWork(errReturned)
	}
	c.mu.Unlock()
	c.working.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done, c.doneErr
}

// safely calls the handler in a new goroutine. It returns an error if the handler panics or calls
// runtime.Goexit.
func (r *run) safely(ctx context.Context, c *claimed) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the handler ended its goroutine")
		defer func() {
			if value := recover(); value != nil {
				err = fmt.Errorf("panic: %v", value)
				r.e.log.Error().Err(err).Str("row", rows.Text(c.row.ID)).Bytes("stack", debug.Stack()).
					Msg("handler panicked")
			}
			done <- err
		}()
		err = leading.Asked(r.handle(ctx, c))
	}()
	return <-done
}

// Serve runs the queue like Run until ctx ends, for example by a signal. Then it claims no more
// rows, and waits for the handlers, at most for grace. It ends the contexts of the other handlers,
// waits at most 10 s for them, and closes the queue. If a handler still runs, Close continues in
// the background. If ctx has ended before, or if Run fails, it only closes the queue. It returns
// the errors of Run and Close. After ErrRunning it is open.
func (q *Queue[T]) Serve(ctx context.Context, grace time.Duration,
	handle func(ctx context.Context, row *Row[T]) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e := q.e
	r, err := q.begin(handle)
	if err != nil {
		return err
	}
	hard, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	result := make(chan error, 1)
	go func() { result <- r.wait(ctx, hard) }()
	select {
	case err = <-result:
	case <-ctx.Done():
		clock.Sleep(e.clock, max(grace, 0), r.ended)
		stop(fmt.Errorf("claim: the grace of %v ended: %w", grace, context.Cause(ctx)))
		clock.Sleep(e.clock, closeLimit, r.ended)
	}
	closing, done := context.WithTimeoutCause(context.WithoutCancel(ctx), closeLimit, context.Canceled)
	defer done()
	closed := q.Close(closing)
	select {
	case err = <-result:
	default:
	}
	return errors.Join(err, closed)
}

// closeLimit is the time limit of three waits: for handlers after their contexts end, for Close in
// Serve, and for hooks.
const closeLimit = 10 * time.Second

// Close ends the contexts of the handlers, waits for them, ends their claims, and releases
// the slot. It also waits for calls of OnDead and OnStuck, whose contexts end after 10 s. If ctx
// ends first, Close returns an error and continues in the background. A handler must not call it.
func (q *Queue[T]) Close(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e := q.e
	e.mu.Lock()
	running := e.running
	if e.closing == nil {
		e.closing = make(chan struct{})
		go e.finishClose(running)
	}
	e.mu.Unlock()
	e.end()
	select {
	case <-e.closing:
		return nil
	case <-ctx.Done():
	}
	return fmt.Errorf("claim: handlers run, or rows are being given back; the queue closes in the "+
		"background: %w", context.Cause(ctx))
}

func (e *engine) finishClose(running *run) {
	defer close(e.closing)
	if running != nil {
		<-running.ended
	}
	e.unobserve()
	e.background.Wait()
	e.report(metrics.Stuck, 0)
	if guard := e.current(); guard != nil {
		for guard.Err() == nil { // another process rescues the rows of a lost slot
			err := e.tendClaims(guard)
			if err == nil {
				break
			}
			e.log.Warn().Err(err).Msg("giving rows back failed")
			clock.Sleep(e.clock, max(e.pace.now(), leastPause), guard.Context().Done())
		}
		e.release(guard)
	}
	limit, done := context.WithTimeout(e.base, closeLimit) // the time limit of hooks
	defer done()
	context.AfterFunc(limit, e.hooks.end)
	e.hooks.calls.Wait()
}
