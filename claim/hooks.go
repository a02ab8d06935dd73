package claim

import (
	"context"
	"runtime/debug"
	"sync"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// hooks calls OnDead and OnStuck in the background, one call at a time.
type hooks struct {
	e     *engine
	ctx   context.Context
	end   context.CancelFunc
	one   sync.Mutex // held during a call
	calls sync.WaitGroup
}

func newHooks(e *engine) *hooks {
	h := &hooks{e: e}
	h.ctx, h.end = context.WithCancel(e.base)
	return h
}

func (h *hooks) dead(row rows.Row) { h.call("OnDead", h.e.cfg.OnDead, row) }

func (h *hooks) stuck(row rows.Row) { h.call("OnStuck", h.e.cfg.OnStuck, row) }

func (h *hooks) call(name string, hook func(context.Context, Info), row rows.Row) {
	if hook == nil {
		return
	}
	h.calls.Go(func() {
		h.one.Lock()
		defer h.one.Unlock()
		defer func() {
			if value := recover(); value != nil {
				h.e.log.Error().Err(&panicError{Value: value}).Str("row", rows.Text(row.ID)).
					Bytes("stack", debug.Stack()).Msg(name + " panicked")
			}
		}()
		hook(h.ctx, infoOf(row))
	})
}

// close waits until all calls have returned. Their contexts end after closeLimit.
func (h *hooks) close() {
	returned := make(chan struct{})
	var limit sync.WaitGroup
	limit.Go(func() {
		clock.Sleep(h.e.clock, closeLimit, returned)
		h.end()
	})
	h.calls.Wait()
	close(returned)
	limit.Wait()
}
