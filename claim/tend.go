package claim

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

// seldom is the number of rounds after which even an idle process reads its claims and wakes due
// retries.
const seldom = 60

// tend checks the claims of this process every few seconds. A round sends one command if there are
// claims, or if a reply was lost recently. An idle process sends at most three commands every five
// minutes.
func (e *engine) tend() {
	last := time.Duration(0) // how long the last command took
	for round := 1; ; round++ {
		pause := max(jittered(e.clock, e.cfg.tend), rare*last, e.pace.now())
		if !e.sleep(pause) {
			return
		}
		sent := e.clock.Now().Mono
		if err := e.tendOnce(round%seldom == 0); err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("tending the queue failed")
		}
		last = e.clock.Now().Mono - sent
		e.findStuck()
	}
}

func (e *engine) tendOnce(all bool) (err error) {
	for _, s := range e.sessions() {
		if s.guard.Err() != nil {
			e.retire(s)
			continue
		}
		e.mu.Lock()
		needed := s.rows > 0 || s.unsure || s.doubt > 0
		e.mu.Unlock()
		if needed || all {
			err = errors.Join(err, e.tendClaims(s))
		}
	}
	if all {
		err = errors.Join(err, e.wake())
	}
	return err
}

// tendClaims reads the rows that are claimed under the slot of a session, with one command. Then it
// does the following, with further commands if necessary:
//   - It gives back rows if the replies to their claims were lost.
//   - It ends claims of earlier holders of the slot.
//   - It ends the contexts of handlers whose rows are lost or cancelled.
func (e *engine) tendClaims(s *session) (err error) {
	e.mu.Lock()
	s.unsure, s.doubt = false, max(s.doubt-1, 0) // set first, because a claim may fail meanwhile
	e.mu.Unlock()
	defer func() {
		if err != nil {
			e.mu.Lock()
			s.unsure = true
			e.mu.Unlock()
		}
	}()
	before := e.flyingOf(s)
	found, err := e.claimedBy(s.slot)
	if err != nil {
		return err
	}
	e.mu.Lock()
	pending := maps.Clone(s.pending)
	e.mu.Unlock()
	flying := e.flyingOf(s)
	var ghosts []rows.Ending
	var left []rows.Row
	there := map[string]rows.Row{}
	for _, row := range found {
		there[claimID(row)] = row
		own := row.Mark.Session == s.guard.Session()
		if !own && row.Mark.SlotFence < s.guard.Fence() {
			left = append(left, row)
		}
		_, waits := pending[row.Mark.Batch]
		if own && !waits && flying[claimID(row)] == nil { // no handler began
			end := row.Uncounted(rows.Ready)
			if row.Mark.Cancelled {
				end = cancelled(row)
			}
			end.At = e.wall()
			ghosts = append(ghosts, end)
		}
	}
	if len(found) < rows.MostClaimed {
		err = e.findLost(before, there)
	}
	if len(ghosts) > 0 {
		n, bad := e.sendEnds(ghosts...)
		if err = errors.Join(err, e.unlessRefused("ghost", bad)); n > 0 {
			e.log.Info().Int("rows", n).Msg("rows of lost replies were given back")
			signal(e.woken)
		}
	}
	_, bad := e.failRows(s.guard, left)
	return errors.Join(err, bad)
}

func (e *engine) claimedBy(slot rows.Slot) ([]rows.Row, error) {
	return sent(e, func(ctx context.Context) ([]rows.Row, error) { return e.store.Claimed(ctx, slot) })
}

func (e *engine) flyingOf(s *session) map[string]*claimed {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]*claimed{}
	for c := range e.flying {
		if c.s == s {
			all[claimID(c.row)] = c
		}
	}
	return all
}

// If a row was cancelled, or this process has lost the row, findLost ends the context of the row's
// handler.
func (e *engine) findLost(before map[string]*claimed, there map[string]rows.Row) error {
	for id, c := range before {
		row, is := there[id]
		c.mu.Lock()
		over := c.returned || c.done || c.lost != nil
		c.mu.Unlock()
		if over || is && !row.Mark.Cancelled {
			continue
		}
		now, err := e.reread(c.row.ID, false)
		if err != nil {
			return err
		}
		c.mu.Lock()
		over = c.returned || c.done || c.working != nil
		c.mu.Unlock()
		if over || now != nil && isClaim(*now, c.row) && !now.Mark.Cancelled {
			continue
		}
		why := lost(c, now)
		e.log.Warn().Err(why).Msg("a row was lost while it was handled")
		c.lose(why)
	}
	return nil
}

func (e *engine) wake() error {
	now, err := e.serverNow()
	if err != nil {
		return err
	}
	n, err := sent(e, func(ctx context.Context) (int, error) { return e.store.Wake(ctx, now) })
	if n > 0 {
		signal(e.woken)
	}
	return e.unlessRefused("wake", err)
}

// unlessRefused returns nil if the server only refuses to change some rows. Otherwise it returns
// err. It logs the first refusal.
func (e *engine) unlessRefused(what string, err error) error {
	if !isRefused(err) {
		return err
	}
	if e.logOnce(what) {
		e.log.Error().Err(err).Msg("the server refuses to make rows ready")
	}
	return nil
}

// failRows ends the claims that earlier holders of a slot have left, and returns the number of
// changed rows. The guard holds the slot. If an earlier holder died, its attempts fail. If an
// earlier holder released the slot, the server has carried out the claim after the release. Then no
// handler began, and failRows gives the row back. Rows that the server refuses to change stay
// claimed.
func (e *engine) failRows(guard *distlock.TryGuard, died []rows.Row) (n int, _ error) {
	if len(died) == 0 {
		return 0, nil
	}
	server, err := e.serverNow()
	if err != nil {
		return 0, err
	}
	now := e.wall()
	most := int64(math.MaxInt64) // for the rows of another queue, whose limit is unknown here
	if strings.HasPrefix(guard.Name(), e.prefix+":") {
		most = int64(e.cfg.MaxAttempts)
	}
	var ends, dead []rows.Ending
	for _, row := range died {
		end := row.End(rows.Retrying)
		end.Error, end.At = rows.DiedText, now
		end.Failures = rows.Failed(row.Mark.Failures, rows.Failure{Attempt: row.Mark.Attempts, At: now,
			Error: rows.DiedText})
		end.NotBefore = notBefore(server, e.backoff(row.Mark.Attempts))
		switch {
		case row.Mark.Cancelled:
			end = cancelled(row)
			end.At = now
		case guard.TakeoverEvidence() == "" && row.Mark.SlotFence == guard.Fence()-1:
			end = row.Uncounted(rows.Ready)
		case row.Mark.Attempts >= most:
			end.To = rows.Dead
		}
		if end.To == rows.Dead {
			dead = append(dead, end)
			continue
		}
		if ends = append(ends, end); end.To == rows.Retrying {
			e.wakeAt(end.NotBefore)
		}
	}
	if len(ends) > 0 {
		n, err = e.sendEnds(ends...)
		err = e.unlessRefused("rescue", err)
		signal(e.woken)
	}
	for _, end := range dead {
		one, bad := e.makeDead(end)
		n, err = n+one, errors.Join(err, bad)
	}
	return n, err
}

// makeDead records that a row is dead, and calls OnDead. If the row's own process has recorded this
// first, makeDead does not call OnDead.
func (e *engine) makeDead(end rows.Ending) (int, error) {
	n, err := e.sendEnds(end)
	if n == 0 || err != nil || e.cfg.OnDead == nil {
		return n, e.unlessRefused("rescue", err)
	}
	row, err := e.reread(end.ID, true)
	if row == nil {
		e.log.Warn().Err(err).Str("row", rows.Text(end.ID)).Msg("OnDead is not called for a rescued row")
		return n, nil
	}
	e.onDead(*row)
	return n, nil
}

// stuckAfter is the time from the end of a handler's context to the report that the handler is
// stuck.
const stuckAfter = 30 * time.Second

// findStuck reports handlers that have not returned although their contexts have ended.
func (e *engine) findStuck() {
	now := e.clock.Now().Mono
	n := 0
	e.mu.Lock()
	var these []*claimed
	for c := range e.flying {
		c.mu.Lock()
		if (!c.returned || c.working != nil) && c.stopped > 0 && now-c.stopped >= stuckAfter {
			if n++; !c.stuck {
				c.stuck = true
				these = append(these, c)
			}
		}
		c.mu.Unlock()
	}
	e.mu.Unlock()
	e.report(metrics.Stuck, float64(n))
	for _, c := range these {
		e.log.Error().Str("row", rows.Text(c.row.ID)).Dur("since", now-c.since).
			Msg("a handler does not return although its context has ended")
		e.hook("OnStuck", e.cfg.OnStuck, c.row)
	}
}

// sleep waits for a pause. During the pause it wakes the retries of this process that become due.
// It returns false if the queue closes.
func (e *engine) sleep(pause time.Duration) bool {
	t := e.clock.NewTimer(pause)
	defer t.Stop()
	for {
		select {
		case <-t.C():
			return !clock.Over(e.life.Done())
		case <-e.due:
			if err := e.wake(); err != nil && e.life.Err() == nil {
				e.log.Warn().Err(err).Msg("waking retries failed")
				clock.Sleep(e.clock, e.pace.now(), e.life.Done())
			}
		case <-e.life.Done():
			return false
		}
	}
}
