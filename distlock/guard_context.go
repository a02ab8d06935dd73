package distlock

import (
	"context"
	"time"
	"weak"
)

// A guardContext is the context of a holding as its user has it. It keeps the guard, as whatever is derived from it
// does: who has only the context holds the lock. The holding, which the process always has, knows it only
// weakly, so that a lock is given back when nobody has the guard or a context of it any more. That is why it is no
// child of the holding's own context, which keeps its children.
type guardContext struct {
	context.Context
	cancel context.CancelCauseFunc
	guard  *TryGuard
}

// Deadline is that of the context with which the lock was acquired.
func (c *guardContext) Deadline() (time.Time, bool) { return c.guard.h.ctx.Deadline() }

// Err ends the context if that of the holding has ended, so that the end of the context with which the lock was
// acquired is seen at once.
func (c *guardContext) Err() error {
	if c.guard.h.ctx.Err() != nil {
		c.cancel(context.Cause(c.guard.h.ctx))
	}
	return c.Context.Err()
}

// showContext makes the context that the user of a guard has. Called once, before the guard is handed out.
func (h *holding) showContext(g *TryGuard) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(h.ctx))
	g.ctx = &guardContext{ctx, cancel, g}
	shown := weak.Make(g.ctx)
	h.shown.Store(&shown)
	context.AfterFunc(h.ctx, h.endShown)
}

// endShown ends the context that the user has when that of the holding has ended.
func (h *holding) endShown() {
	if shown := h.shown.Load(); shown != nil {
		if c := shown.Value(); c != nil {
			c.cancel(context.Cause(h.ctx))
		}
	}
}
