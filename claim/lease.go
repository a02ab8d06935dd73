package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// leaseLeft is how long the worker of a row may still believe in its lease, by its larger clock.
func (e *engine) leaseLeft(c *claimed) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.cfg.Lease - e.cfg.Lease/4 - clock.HolderElapsed(c.renewed, e.clock.Now())
}

// leaseErr is a *LostError when the lease of a row is over.
func (e *engine) leaseErr(c *claimed) error {
	if e.cfg.Lease == 0 || e.leaseLeft(c) > 0 {
		return nil
	}
	return &LostError{ID: rows.Text(c.row.ID), Fence: c.row.Mark.Fence,
		Now: fmt.Sprintf("its lease of %v was not renewed in time", e.cfg.Lease)}
}

func (e *engine) renew(ctx context.Context, c *claimed) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if c.stage.Load() != open { // in DoneWith it would wait for the transaction that it is called in
		return ErrFinished
	}
	if err := e.leaseErr(c); err != nil {
		return err
	}
	sent := e.clock.Now()
	ctx, done := e.command(ctx)
	defer done()
	n, err := e.store.Renew(ctx, c.row)
	if err != nil {
		return fmt.Errorf("claim: renew row %s: %w", rows.Text(c.row.ID), err)
	}
	if n == 0 {
		return &LostError{ID: rows.Text(c.row.ID), Fence: c.row.Mark.Fence,
			Now: "it is not claimed by this worker any more"}
	}
	if err := e.leaseErr(c); err != nil { // it was over before the reply came: one way
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.Mono > c.renewed.Mono {
		c.renewed = sent
	}
	return nil
}

// beginLate is one command before a handler begins: where the row waited and its lease has run for
// a while, which begins anew, and where it was rescued before: its process may die by it again, and
// the attempt has to count then. Until then it is not known that the row was begun.
func (e *engine) beginLate(ctx context.Context, c *claimed) error {
	const short = 20 // parts of a lease that a handler can do without
	waited := e.cfg.Lease > 0 && clock.HolderElapsed(c.renewed, e.clock.Now()) > e.cfg.Lease/short
	if !c.row.Mark.Waiting || !waited && !c.row.Mark.Rescued {
		return nil
	}
	return e.renew(ctx, c)
}

// endWithLease ends the context of a handler with the lease of its row. stop ends that.
func (e *engine) endWithLease(ctx context.Context, c *claimed,
	end context.CancelCauseFunc) (stop func()) {
	if e.cfg.Lease == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if err := e.leaseErr(c); err != nil {
				end(err)
				return
			}
			if !clock.Sleep(e.clock, max(e.leaseLeft(c), time.Millisecond), done) {
				return
			}
		}
	})
	return func() { close(done); watching.Wait() }
}

// leases is what one process has seen of the leases of a queue.
type leases map[string]leaseSeen

// A leaseSeen is a counter and when it was seen first: after the reply.
type leaseSeen struct {
	mark  rows.Mark
	since time.Duration
}

// watchLeases gives rows to others whose counter stood still for their whole lease, from after the
// first look's reply to before the last look was sent. A renewal in between wins.
func (e *engine) watchLeases(ctx context.Context, seen leases) error {
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	sent := e.clock.Now().Mono
	found, err := e.store.Leased(ctx)
	if err != nil {
		return err
	}
	replied := e.clock.Now().Mono
	there := map[string]bool{}
	var errs []error
	for _, row := range found {
		if row.Mark.Locks != "" && row.Mark.Locks != e.locks {
			continue // watchOnce tells
		}
		key := rows.Key(row.ID)
		there[key] = true
		last, known := seen[key]
		if !known || last.mark.Batch != row.Mark.Batch || last.mark.Beat != row.Mark.Beat {
			seen[key] = leaseSeen{row.Mark, replied}
			continue
		}
		if sent-last.since < row.Mark.Lease {
			continue
		}
		most := e.most(row.Mark.Slot)
		n, err := e.store.Expire(ctx, e.wall(), row, most)
		if n > 0 {
			e.log.Warn().Str("row", rows.Text(row.ID)).Dur("lease", row.Mark.Lease).
				Msg("a lease ended, its row was rescued")
			e.diedByLease(ctx, row, most)
		}
		errs = append(errs, e.tidied(n, err))
	}
	for key := range seen {
		if !there[key] {
			delete(seen, key)
		}
	}
	return errors.Join(errs...)
}
