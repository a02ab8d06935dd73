package distlock

import (
	"context"
	"errors"
	"sync/atomic"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// following is one change stream, kept open by a goroutine of its own.
type following struct {
	open    atomic.Bool
	changed chan struct{} // the stream opened or broke: ask what happened meanwhile
	cancel  context.CancelFunc
	done    chan struct{}
}

// follow keeps a stream of notices open for the process of m, until end. Where there are none it
// does nothing.
func follow(m *Manager, r *room) *following {
	f := &following{changed: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	if !m.pinger.Server().ChangeStreams {
		close(f.done)
		return f
	}
	go func() { // ends with end, which waits for it
		defer close(f.done)
		for ctx.Err() == nil {
			err := f.once(ctx, m, r)
			var denied *catalog.PrivilegeError
			switch {
			case errors.Is(err, catalog.ErrNoNotices):
				return
			case errors.As(err, &denied): // asking again would only fill the server's log
				m.log.Warn().Err(err).Msg("no stream of grants; waiters ask for them")
				return
			}
			m.log.Debug().Err(err).Msg("stream of grants")
			clock.Sleep(m.cfg.Clock, m.pinger.Jitter(m.cfg.Poll, 0.5), ctx.Done())
		}
	}()
	return f
}

// once opens a stream and follows it until it breaks or the process takes another id.
func (f *following) once(ctx context.Context, m *Manager, r *room) error {
	term := m.pinger.Term()
	if term == nil {
		return ErrNoHeartbeat
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
	stream, err := m.locks.Notices(ctx, term.Process())
	if err != nil {
		return err
	}
	defer stream.Close(context.WithoutCancel(ctx))
	f.set(true)
	defer f.set(false)
	for {
		awards, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		r.deliver(awards)
	}
}

func (f *following) set(open bool) {
	f.open.Store(open)
	select {
	case f.changed <- struct{}{}:
	default: // it will be asked
	}
}

func (f *following) end() {
	f.cancel()
	<-f.done
}
