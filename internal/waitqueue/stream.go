package waitqueue

import (
	"context"
	"errors"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// following is one change stream, kept open by a goroutine of its own.
type following struct {
	changed chan struct{} // the stream opened, broke or lags: ask what happened meanwhile
	cancel  context.CancelFunc
	done    chan struct{}

	worth worth // the queue's mu guards it
	brief bool  // the last one broke within PollMax; its goroutine alone has it
}

// follow keeps a stream of notices open until end, and makes it the queue's. Where there are none
// it does nothing.
func follow(q *Queue) *following {
	f := &following{changed: make(chan struct{}, 1), done: make(chan struct{})}
	q.mu.Lock()
	q.stream = f
	q.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	if !q.Process.Server().ChangeStreams {
		close(f.done)
		return f
	}
	go func() { // ends with end, which waits for it
		defer close(f.done)
		for ctx.Err() == nil {
			err := f.once(ctx, q)
			var denied *catalog.PrivilegeError
			switch {
			case errors.Is(err, catalog.ErrNoGrantStream):
				return
			case errors.As(err, &denied): // asking again would only fill the server's log
				q.Log.Warn().Err(err).Msg("no stream of grants; waiters ask for them")
				return
			}
			q.Log.Debug().Err(err).Msg("stream of grants")
			clock.Sleep(q.Clock, q.Process.Jitter(q.Poll, 0.5), ctx.Done())
		}
	}()
	return f
}

// once opens a stream and follows it until it breaks or the process takes another id.
func (f *following) once(ctx context.Context, q *Queue) error {
	term := q.Process.Term()
	if term == nil {
		return errors.New("no heartbeat")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with once
		select {
		case <-term.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	stream, err := q.Store.GrantStream(ctx, term.Process())
	if err != nil {
		return err
	}
	defer stream.Close(context.WithoutCancel(ctx))
	// One behind a mongos has yet to show that it tells in time, and so has one after another that
	// was late, or broke before anybody asked whether it was: what is found by the first question
	// may be older than the stream.
	opened := q.Clock.Now().Mono
	f.set(q, opens(opened, q.Process.Server().Kind != catalog.Mongos && !q.lags.Lasts() && !f.brief))
	defer func() {
		f.brief = q.Clock.Now().Mono-opened <= q.PollMax
		f.set(q, worth{})
	}()
	for {
		grants, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		q.deliver(grants, f)
	}
}

// set begins or ends a stream.
func (f *following) set(q *Queue, is worth) {
	q.mu.Lock()
	f.worth = is
	q.mu.Unlock()
	f.askAtOnce()
}

func (f *following) askAtOnce() {
	select {
	case f.changed <- struct{}{}:
	default: // it will be asked
	}
}

func (f *following) end() {
	f.cancel()
	<-f.done
}
